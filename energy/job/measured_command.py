"""A command, and the energy that its node uses meanwhile.

Covers: the recorder, the node's idle power before the command, the note of the command. Does not
cover: the recorder's process (emlio.energy.job.shared_recorder), the command's
(emlio.energy.job.command), loaders' journals, figures (emlio.energy.job.job_energy).
"""

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from emlio.clock import Clock, SystemClock
from emlio.energy.job.command import run_command
from emlio.energy.job.note import JobNote, is_job_folder, write_note
from emlio.energy.job.shared_recorder import JobRecorder
from emlio.energy.recording.edge import Edge
from emlio.energy.values.run import boot_id
from emlio.errors import ConfigError, EmlioError

__all__ = ["VARIABLE", "JobOrder", "run_job"]

VARIABLE = "EMLIO_ENERGY"
"""The variable that tells loaders in any process of the command to note their epochs, and in which
folder.
"""

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """The settings of one measured command.

    Attributes:
        words: the command.
        folder: for notes and recordings; it must not hold a job yet.
        rest_ns: how long to wait before the command, to measure idle power; 0 for not at all. There
            is no wait where all figures are estimated, since the model knows the idle power.
        recorder: more arguments for `emlio energy record`.
        version: of this program.
    """

    words: tuple[str, ...]
    folder: Path
    rest_ns: int
    recorder: tuple[str, ...] = ()
    version: str = ""

    def __post_init__(self) -> None:
        if not self.words:
            raise ConfigError("there must be a command to run, got none")
        if self.rest_ns < 0:
            raise ConfigError(f"the time at rest must be at least 0, got {self.rest_ns} ns")


def run_job(
    order: JobOrder,
    environment: Mapping[str, str],
    *,
    warn: Callable[[str], None],
    clock: Clock | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> int:
    """Run the command. A failure of the recorder never prevents that.

    Args:
        order: the settings.
        environment: of this process.
        warn: called with a sentence about each thing that is missing.
        clock: of this node.
        wait: sleeps for a number of seconds.

    Returns:
        The command's exit status, as `run_command` returns it.

    Raises:
        ConfigError: the folder cannot be used, or the command cannot be started.
    """
    clock = clock or SystemClock()
    _make(order.folder)
    recorder = _recorder(order, warn)
    try:
        rest_ns = _rest(recorder, order.rest_ns, wait) if recorder is not None else None
        begun = _edge(recorder, warn)
        note = JobNote(
            command=order.words,
            node=socket.gethostname() if begun is None else begun.node,
            boot=boot_id(_PROC) if begun is None else begun.boot,
            begun_real_ns=time.time_ns(),
            begun_ns=_moment(begun, clock),
            file="" if begun is None else Path(begun.file).name,
            recording=None if begun is None else begun.number,
            rest_ns=rest_ns,
            version=order.version,
        )
        write_note(order.folder, note)
        status = run_command(order.words, {**environment, VARIABLE: str(order.folder.absolute())})
        ended_ns = _moment(_edge(recorder, warn), clock)
        write_note(order.folder, replace(note, ended_ns=max(ended_ns, note.begun_ns + 1), status=_told(status)))
        return status
    finally:
        if recorder is not None:
            recorder.close()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the folder of the job cannot be created: {folder}: {error.strerror}") from error
    if is_job_folder(folder):
        raise ConfigError(f"a job must have a new folder, {folder} has the figures of another one")


def _recorder(order: JobOrder, warn: Callable[[str], None]) -> JobRecorder | None:
    try:
        return JobRecorder(order.folder, options=order.recorder)
    except EmlioError as error:
        warn(f"energy is not recorded: {error}")
        return None


def _rest(recorder: JobRecorder, rest_ns: int, wait: Callable[[float], None]) -> tuple[int, int] | None:
    """Measure idle power for a while, unless all devices are estimated."""
    if not rest_ns:
        return None
    try:
        begun = recorder.read()
        if all(device.source == "model" for device in begun.devices if device.adds):
            return None
        wait(rest_ns / 1e9)
        return begun.reading.mono_ns, recorder.read().reading.mono_ns
    except EmlioError:
        return None  # the caller warns when it reads the recorder at the command's start


def _edge(recorder: JobRecorder | None, warn: Callable[[str], None]) -> Edge | None:
    try:
        return None if recorder is None else recorder.read()
    except EmlioError as error:
        warn(f"the recorder does not answer: {error}")
        return None


def _moment(edge: Edge | None, clock: Clock) -> int:
    return clock.monotonic_ns() if edge is None else edge.reading.mono_ns


def _told(status: int) -> int:
    """Return the status as a shell reports it.

    That is 128 plus the signal's number if a signal ended the command.
    """
    return 128 - status if status < 0 else status
