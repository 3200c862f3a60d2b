"""The energy of a loader's epochs, recorded during the training.

Takes readings at the edges of epochs, writes a journal, and asks the daemons. Nothing here may end
or slow a training run: a failure causes one warning and missing figures.

Covers: whether energy is recorded and where, the recorder's part in each epoch, a thread for slow
work, the end. Does not cover: notes within an epoch (emlio.receiver.timing.epoch_notes), the
recorder (emlio.energy.job.shared_recorder), figures (emlio.energy.job.job_energy).
"""

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread

import numpy as np

from emlio import __version__
from emlio.clock import SystemClock
from emlio.energy.job.epoch_energy import EpochEnergy
from emlio.energy.job.folder import shared_folder
from emlio.energy.job.job_energy import Job, read_job
from emlio.energy.job.journal import JournalEpoch, JournalFile, LoaderFacts, StorageEnergy
from emlio.energy.job.shared_recorder import JobRecorder
from emlio.energy.recording.edge import Edge
from emlio.energy.recording.store import Store
from emlio.energy.report.text import job_text
from emlio.energy.values.run import boot_id
from emlio.errors import ConfigError, EmlioError, PeerLostError, RefusedError
from emlio.interrupts import interrupt_behind, is_interrupt
from emlio.receiver.iteration.tally import Tally
from emlio.receiver.observer import LoaderObserver, StartedLoader
from emlio.receiver.threads.bell import Bell
from emlio.receiver.timing.decode_times import WorkLog
from emlio.receiver.timing.device_steps import DeviceSteps
from emlio.receiver.timing.epoch_notes import EpochNotes
from emlio.receiver.torch_adapter import cuda_events

__all__ = ["EnergyChoice", "LoaderEnergy", "begin_energy", "choose_energy"]

_LOG = logging.getLogger("emlio.receiver")
_NUMBERS: dict[tuple[Path, int], "count[int]"] = {}
"""Numbers for the loaders of this process, by folder and rank."""

_Ask = Callable[[int, int, int], tuple[StorageEnergy, ...]]

_STARTING_S = 45.0
_MOST_FAILURES = 3
_DAEMONS_NS = 5_000_000_000
_ENDING_S = 30.0
_LOOKS = 10
_BETWEEN_LOOKS_S = 0.1
"""A recorder returns a requested reading at once, and one of its threads writes it later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyChoice:
    """The user's choice to record energy.

    Attributes:
        folder: the job's folder on this node; None for a new one in the working directory.
        reports: whether a report is printed at the end.
    """

    folder: Path | None
    reports: bool


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
    """Return an observer that records energy, or one that does nothing if no energy is wanted.

    See `choose_energy` and `LoaderEnergy`.
    """
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
        self._recorder: JobRecorder | None = None
        self._is_open = False
        self._opened = Bell()
        self._patient = True
        self._notes: EpochNotes | None = None
        self._records_from = 0
        self._resumes = False
        self._warned = False
        self._closed = False
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._facts: LoaderFacts | None = None
        self._ask: _Ask | None = None
        self._job = ""
        self._folder = Path()
        self._file: JournalFile | None = None
        self._written: JournalEpoch | None = None
        self._last: Edge | None = None
        self._known: Edge | None = None
        self._failures = 0
        self._thread = Thread(target=self._run, name="emlio-energy", daemon=True)

    def started(self, loader: StartedLoader) -> None:
        """Find or start the recorder, in the background."""
        config = loader.config
        self._facts = LoaderFacts(
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
        self._job = config.job if config.world_size > 1 else f"process {os.getpid()}"
        if config.rank == 0 and config.address.peers:
            self._ask = loader.ask
        self._thread.start()

    # ---- an epoch, in the user's thread -----------------------------------------------------------------------------

    def epoch_begun(self, epoch: int, *, resumes: bool) -> EpochNotes:
        """Begin an iteration; return where it notes its times. See `EpochObserver`."""
        self.epoch_ended(whole=False)
        if self._patient:
            if not self._is_open and not self._opened.wait(_STARTING_S):
                self._warn("the recorder is not there yet; epochs have no figures until it is")
            self._patient = False
        steps = self._find_steps()
        self._records_from, self._resumes = self._tally.records, resumes
        self._last = self._edge()
        from_ns = self._last.reading.mono_ns if self._last is not None else time.monotonic_ns()
        self._notes = EpochNotes(epoch=epoch, from_ns=from_ns, work=self._work_log, steps=steps)
        return self._notes

    def _find_steps(self) -> DeviceSteps | None:
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
            self._warn(f"steps of the device cannot be noted, the host's are: {error!r}")
        return self._steps

    def _edge(self) -> Edge | None:
        """Return a reading now; None if none can be made.

        A recorder that fails several times in a row is not asked again.
        """
        recorder = self._recorder
        if recorder is None:
            return None
        try:
            self._known = edge = recorder.read()
            self._failures = 0
            return edge
        except RefusedError:
            return None  # epochs of milliseconds; the recorder's scheduled readings must do
        except EmlioError as error:
            if (interrupt := interrupt_behind(error)) is not None:
                raise interrupt from None
            self._failures += 1
            if self._failures == _MOST_FAILURES:
                self._recorder = None
                self._tasks.put(recorder.close)
            self._warn(f"an epoch may have no figures: {error}")
            return None

    def epoch_ended(self, *, whole: bool) -> None:
        """See `EpochObserver`."""
        notes, self._notes = self._notes, None
        if notes is None:
            return
        notes.settle()
        edge = self._edge() if notes.left_ns is None else None
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
        ended = JournalEpoch(
            epoch=notes.epoch,
            from_ns=notes.from_ns,
            to_ns=to_ns,
            samples=self._tally.records - self._records_from,
            whole=whole and not self._resumes,
            cpu=cpu,
            file=Path(self._known.file).name if self._known is not None else "",
            recording=self._known.number if self._known is not None else None,
        )
        self._tasks.put(lambda: self._keep(ended, notes))

    def figures(self) -> tuple[EpochEnergy, ...]:
        """Return the figures of ended epochs in the folder, including other loaders of this node.

        Waits until this loader's epochs are written and the daemons' answers have come.

        Raises:
            PeerLostError: that takes too long.
            ConfigError: the recording cannot be read.
        """
        if self._thread.is_alive() and not self._closed:
            written = Bell()
            self._tasks.put(written.ring)
            if not written.wait(_ENDING_S):
                raise PeerLostError(f"what is known of epochs' energy must be there within {_ENDING_S:g} s")
        return () if self._written is None else _read_job_after(self._folder, self._written).report.epochs

    # ---- slow work, in its own thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            if not self._closed:
                self._guarded(self._open)
        finally:
            self._is_open = True
            self._opened.ring()
        while (task := self._tasks.get()) is not None:
            self._guarded(task)
        self._guarded(self._report)
        with ExitStack() as stack:
            for part in (self._recorder, self._file):
                if part is not None:
                    stack.callback(self._guarded, part.close)

    def _guarded(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:  # noqa: BLE001  # see the module's docstring
            self._warn(f"figures will be absent: {error}")

    def _warn(self, text: str) -> None:
        """Warn once; later messages are logged at DEBUG level."""
        (_LOG.debug if self._warned else _LOG.warning)("energy: %s", text)
        self._warned = True

    def _open(self) -> None:
        facts = self._facts
        if facts is None:
            return
        recorder: JobRecorder | None = None
        with ExitStack() as stack:
            folder = self._choice.folder
            if folder is None:
                folder = stack.enter_context(shared_folder(Path.cwd(), self._job, datetime.now().astimezone()))
            self._folder = folder
            try:
                recorder = JobRecorder(folder)
                self._known = first = recorder.read()
            except EmlioError as error:
                if recorder is not None:
                    recorder.close()
                    recorder = None
                self._warn(f"epochs will have no figures: {error}")
            else:
                facts = replace(facts, node=first.node, boot=first.boot)
        self._facts = replace(facts, number=next(_NUMBERS.setdefault((folder, facts.rank), count())))
        self._recorder = recorder
        self._file = JournalFile(folder, self._facts)

    def _keep(self, epoch: JournalEpoch, notes: EpochNotes) -> None:
        """Write the notes, then the daemons' answers: the process may be killed between the two."""
        if self._file is None:
            return
        self._file.add(replace(epoch, spans=notes.spans(epoch.to_ns)))
        self._written = epoch
        if self._ask is not None:
            self._file.add_storage(epoch, self._asked(self._ask, epoch))

    def _asked(self, ask: _Ask, epoch: JournalEpoch) -> tuple[StorageEnergy, ...]:
        try:
            return ask(epoch.from_ns, epoch.to_ns, _DAEMONS_NS)
        except EmlioError as error:
            return (StorageEnergy(daemon="all", absent=str(error)),)

    def _report(self) -> None:
        if self._choice.reports and self._written is not None and self._facts is not None and self._facts.rank == 0:
            text = job_text(_read_job_after(self._folder, self._written).report)
            sys.stderr.write(f"{text}\n\nwhat it is made of lies in {self._folder}\n")
            sys.stderr.flush()

    # ---- the end ------------------------------------------------------------------------------------------------------

    def closed(self) -> None:
        """End the current iteration, write, report, and release the recorder."""
        if not self._closed:
            self.epoch_ended(whole=False)
            self._tasks.put(None)
            self._closed = True
        # After an interrupt in `start` the thread may begin later; then it ends by itself.
        if self._thread.is_alive():
            self._thread.join(_ENDING_S)


def _read_job_after(folder: Path, epoch: JournalEpoch) -> Job:
    """Read a job's folder with the recording of this epoch in it.

    If the recording is not complete after a while, what there is of it is read.

    Raises:
        ConfigError: it cannot be read.
    """
    waiting = Event()
    for _ in range(_LOOKS):
        if epoch.recording is None or _is_recorded(folder / epoch.file, epoch.recording, epoch.to_ns):
            break
        waiting.wait(_BETWEEN_LOOKS_S)
    return read_job([folder])


def _is_recorded(file: Path, number: int, to_ns: int) -> bool:
    """Return whether the recording is complete up to this time."""
    try:
        with Store(file) as store:
            if store.recording(number).ended_mono_ns is not None:
                return True
            last_ns = store.load(number, from_ns=to_ns).end_ns
    except ConfigError:
        return True  # reading it will raise the error
    return last_ns is not None and last_ns >= to_ns
