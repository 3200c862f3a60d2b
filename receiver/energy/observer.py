"""The energy of a loader's epochs, recorded during the training.

Takes readings at the edges of epochs. Nothing here may end or slow a training run: a failure causes
one warning and missing figures.
"""

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from emlio import __version__
from emlio.clock import SystemClock
from emlio.energy.job.epoch_energy import EpochEnergy
from emlio.energy.job.journal import JournalEpoch, LoaderFacts
from emlio.energy.recording.edge import Edge
from emlio.energy.values.run import boot_id
from emlio.errors import ConfigError, EmlioError, RefusedError
from emlio.interrupts import interrupt_behind, is_interrupt
from emlio.receiver.energy.job_writer import EnergyChoice, JobWriter
from emlio.receiver.iteration.tally import Tally
from emlio.receiver.observer import LoaderObserver, StartedLoader
from emlio.receiver.timing.decode_times import WorkLog
from emlio.receiver.timing.device_steps import DeviceSteps
from emlio.receiver.timing.epoch_notes import EpochNotes
from emlio.receiver.timing.observers import UNOBSERVED_PASS, PassObserver
from emlio.receiver.torch_adapter import cuda_events

__all__ = ["LoaderEnergy", "begin_energy", "choose_energy"]

_STARTING_S = 45.0
_MOST_FAILURES = 3


def choose_energy(given: object, environment: Mapping[str, str]) -> EnergyChoice | None:
    """Return the user's choice, or None not to record. The argument goes before the environment."""
    if given is None:
        folder = environment.get("EMLIO_ENERGY", "")
        return EnergyChoice(folder=Path(folder).absolute(), reports=False) if folder else None
    if isinstance(given, bool | np.bool_):
        return EnergyChoice(folder=None, reports=True) if given else None
    if not isinstance(given, str | Path) or not str(given):
        raise ConfigError(f"energy must be True, False or a folder's path, got {given!r}")
    return EnergyChoice(folder=Path(given).absolute(), reports=True)


def begin_energy(
    given: bool | str | Path | None, environment: Mapping[str, str], tally: Tally, *, device: str | None
) -> LoaderObserver:
    """Return an observer that records energy, or one that does nothing if no energy is wanted."""
    choice = choose_energy(given, environment)
    return LoaderObserver() if choice is None else LoaderEnergy(choice, tally, device=device)


class LoaderEnergy(LoaderObserver):
    """Records the energy of one loader."""

    def __init__(self, choice: EnergyChoice, tally: Tally, *, device: str | None) -> None:
        """Prepare; nothing is started yet.

        Args:
            choice: the user's choice.
            tally: the loader's counts.
            device: the device as given to the loader.
        """
        self._work_log = WorkLog()
        self.work = self._work_log
        self._choice = choice
        self._tally = tally
        self._device = device
        self._steps: DeviceSteps | None = None
        self._writer: JobWriter | None = None
        self._patient = True
        self._failures = 0
        self._notes: EpochNotes | None = None
        self._last: Edge | None = None
        self._records_from = 0
        self._resumes = False

    def started(self, loader: StartedLoader) -> None:
        """Find or start the recorder, in the background."""
        config = loader.config
        facts = LoaderFacts(
            node=socket.gethostname(),
            boot=boot_id(Path("/proc")),
            rank=config.rank,
            pid=os.getpid(),
            number=0,
            begun_real_ns=time.time_ns(),
            world_size=config.world_size,
            dataset=loader.dataset,
            batch_size=config.rows,
            shuffle=str(config.shuffle),
            protection=loader.protection,
            version=__version__,
        )
        # For a single process its pid is a good enough name of a job; several are of the same job
        # if their launcher says so.
        job = config.job if config.world_size > 1 else f"process {os.getpid()}"
        asks = config.rank == 0 and config.address.peers
        self._writer = JobWriter(self._choice, facts, job, loader.ask if asks else None)
        self._writer.start()

    def epoch_begun(self, epoch: int, *, resumes: bool) -> PassObserver:
        """Begin an iteration; return where it notes its times."""
        self.epoch_ended(whole=False)
        writer = self._writer
        if writer is None:
            return UNOBSERVED_PASS
        if self._patient and not writer.wait_until_open(_STARTING_S):
            writer.warn("the recorder is not there yet; epochs have no figures until it is")
        self._patient = False
        steps = self._find_steps(writer)
        self._records_from, self._resumes = self._tally.records, resumes
        self._last = self._edge(writer)
        from_ns = self._last.reading.mono_ns if self._last is not None else time.monotonic_ns()
        self._notes = EpochNotes(epoch=epoch, from_ns=from_ns, work=self._work_log, steps=steps)
        return self._notes

    def _find_steps(self, writer: JobWriter) -> DeviceSteps | None:
        """Return the steps of the device that the user's work runs on.

        It may be in use only since now.
        """
        try:
            if self._steps is None:
                events = cuda_events(self._device)
                self._steps = DeviceSteps(events, SystemClock()) if events is not None else None
            if self._steps is not None:
                self._steps.begin()
        except Exception as error:  # no error of the device may end the training
            if is_interrupt(error):
                raise
            self._steps = None
            writer.warn(f"steps of the device cannot be noted, the host's are: {error!r}")
        return self._steps

    def _edge(self, writer: JobWriter) -> Edge | None:
        """Return a reading now; None if none can be made.

        A recorder that fails several times in a row is not asked again.
        """
        if writer.recorder is None:
            return None
        try:
            writer.known = edge = writer.recorder.read()
            self._failures = 0
            return edge
        except RefusedError:
            return None  # epochs of milliseconds; the recorder's scheduled readings must do
        except EmlioError as error:
            if (interrupt := interrupt_behind(error)) is not None:
                raise interrupt from None
            self._failures += 1
            if self._failures == _MOST_FAILURES:
                writer.drop_recorder()
            writer.warn(f"an epoch may have no figures: {error}")
            return None

    def epoch_ended(self, *, whole: bool) -> None:
        """End the current iteration, if there is one."""
        notes, self._notes = self._notes, None
        writer = self._writer
        if notes is None or writer is None:
            return
        notes.settle()
        edge = self._edge(writer) if notes.left_ns is None else None
        if notes.left_ns is not None:
            to_ns = notes.left_ns
        else:
            to_ns = edge.reading.mono_ns if edge is not None else time.monotonic_ns()
        cpu = notes.finish(to_ns)
        begun = self._last
        if begun is not None and edge is not None:
            busy = (begun.reading.cpu_busy_ns, edge.reading.cpu_busy_ns)
            if busy[0] is not None and busy[1] is not None:
                cpu = replace(cpu, node_ns=max(busy[1] - busy[0], 0))
        if to_ns <= notes.from_ns:
            return
        known = writer.known
        ended = JournalEpoch(
            epoch=notes.epoch,
            from_ns=notes.from_ns,
            to_ns=to_ns,
            samples=self._tally.records - self._records_from,
            whole=whole and not self._resumes,
            cpu=cpu,
            file=Path(known.file).name if known is not None else "",
            recording=known.number if known is not None else None,
        )
        writer.keep(ended, lambda: notes.spans(to_ns))

    def figures(self) -> tuple[EpochEnergy, ...]:
        """Return the figures of ended epochs, as `JobWriter.figures` does."""
        return () if self._writer is None else self._writer.figures()

    def closed(self) -> None:
        """End the current iteration, write, report, and release the recorder."""
        self.epoch_ended(whole=False)
        if self._writer is not None:
            self._writer.close()
