"""A loader's part in a job's folder: the recorder, the journal, the daemons' answers, the report.

A thread does what may take long. Nothing here may end or slow a training run: a failure causes one
warning and missing figures.
"""

import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread

import msgspec

from emlio.energy.job.epoch_energy import EpochEnergy
from emlio.energy.job.folder import shared_folder
from emlio.energy.job.job_energy import Job, read_job
from emlio.energy.job.journal import JournalEpoch, JournalFile, LoaderFacts, StorageEnergy
from emlio.energy.job.shared_recorder import JobRecorder
from emlio.energy.recording.edge import Edge
from emlio.energy.recording.store import Store
from emlio.energy.report.text import job_text
from emlio.energy.values.spans import Span
from emlio.errors import ConfigError, EmlioError, PeerLostError
from emlio.receiver.threads.bell import Bell

__all__ = ["EnergyChoice", "JobWriter"]

_LOG = logging.getLogger("emlio.receiver")
_NUMBERS: dict[tuple[Path, int], "count[int]"] = {}
"""Numbers for the loaders of this process, by folder and rank."""

_Ask = Callable[[int, int, int], tuple[StorageEnergy, ...]]

_DAEMONS_NS = 5_000_000_000
_ENDING_S = 30.0
_LOOKS = 10
_BETWEEN_LOOKS_S = 0.1
"""A recorder returns a requested reading at once, and one of its threads writes it later."""


class EnergyChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The user's choice to record energy.

    Attributes:
        folder: the job's folder on this node; None for a new one in the working directory.
        reports: whether a report is printed at the end.
    """

    folder: Path | None
    reports: bool


class JobWriter:
    """A thread that writes what one loader notes. Methods are for the user's thread.

    Attributes:
        recorder: answers requests for readings; None before it is open, and if it cannot be used.
        known: the last reading of the recorder.
    """

    def __init__(self, choice: EnergyChoice, facts: LoaderFacts, job: str, ask: _Ask | None) -> None:
        """Prepare; nothing is started yet.

        Args:
            choice: the user's choice.
            facts: of the loader; node, boot and number are replaced by what the recorder knows.
            job: a name that no other running job on this node has.
            ask: returns the energy of the daemons' nodes; None if another rank asks for it.
        """
        self.recorder: JobRecorder | None = None
        self.known: Edge | None = None
        self._choice = choice
        self._facts = facts
        self._job = job
        self._ask = ask
        self._is_open = False
        self._opened = Bell()
        self._warned = False
        self._closed = False
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._file: JournalFile | None = None
        self._written: JournalEpoch | None = None
        self._thread = Thread(target=self._run, name="emlio-energy", daemon=True)

    def start(self) -> None:
        """Find or start the recorder, in the background."""
        self._thread.start()

    def wait_until_open(self, timeout_s: float) -> bool:
        """Wait for the recorder, and return whether it is clear if there is one."""
        return self._is_open or self._opened.wait(timeout_s)

    def warn(self, text: str) -> None:
        """Warn once; later messages are logged at DEBUG level."""
        (_LOG.debug if self._warned else _LOG.warning)("energy: %s", text)
        self._warned = True

    def drop_recorder(self) -> None:
        """Ask the recorder no more."""
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            self._tasks.put(recorder.close)

    def keep(self, epoch: JournalEpoch, spans: Callable[[], tuple[Span, ...]]) -> None:
        """Write an epoch; its spans are found in the background."""
        self._tasks.put(lambda: self._keep(epoch, spans))

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
        found = self._read_job()
        return () if found is None else found.report.epochs

    def close(self) -> None:
        """Write, report, and release the recorder. A second call continues an interrupted one."""
        if not self._closed:
            self._tasks.put(None)
            self._closed = True
        # After an interrupt in `start` the thread may begin later; then it ends by itself.
        if self._thread.is_alive():
            self._thread.join(_ENDING_S)

    # ---- in its own thread --------------------------------------------------------------------------------------------

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
            for part in (self.recorder, self._file):
                if part is not None:
                    stack.callback(self._guarded, part.close)

    def _guarded(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:  # noqa: BLE001  # see the module's docstring
            self.warn(f"figures will be absent: {error}")

    def _open(self) -> None:
        facts = self._facts
        recorder: JobRecorder | None = None
        with ExitStack() as stack:
            folder = self._choice.folder
            if folder is None:
                folder = stack.enter_context(shared_folder(Path.cwd(), self._job, datetime.now().astimezone()))
            try:
                recorder = JobRecorder(folder)
                self.known = first = recorder.read()
            except EmlioError as error:
                if recorder is not None:
                    recorder.close()
                    recorder = None
                self.warn(f"epochs will have no figures: {error}")
            else:
                facts = replace(facts, node=first.node, boot=first.boot)
        self.recorder = recorder
        number = next(_NUMBERS.setdefault((folder, facts.rank), count()))
        self._file = JournalFile(folder, replace(facts, number=number))

    def _keep(self, epoch: JournalEpoch, spans: Callable[[], tuple[Span, ...]]) -> None:
        """Write the notes, then the daemons' answers: the process may be killed between the two."""
        if self._file is None:
            return
        self._file.add(replace(epoch, spans=spans()))
        self._written = epoch
        if self._ask is not None:
            self._file.add_storage(epoch, self._asked(self._ask, epoch))

    def _asked(self, ask: _Ask, epoch: JournalEpoch) -> tuple[StorageEnergy, ...]:
        try:
            return ask(epoch.from_ns, epoch.to_ns, _DAEMONS_NS)
        except EmlioError as error:
            return (StorageEnergy(daemon="all", absent=str(error)),)

    def _report(self) -> None:
        job = self._read_job() if self._choice.reports and self._facts.rank == 0 else None
        if job is not None:
            sys.stderr.write(f"{job_text(job.report)}\n\nwhat it is made of lies in {job.folders[0].path}\n")
            sys.stderr.flush()

    def _read_job(self) -> Job | None:
        """Read the job's folder with the recording of the last epoch in it; None before there is one.

        If the recording is not complete after a while, what there is of it is read.

        Raises:
            ConfigError: it cannot be read.
        """
        epoch = self._written
        if epoch is None or self._file is None:
            return None
        folder, waiting = self._file.path.parent, Event()
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
