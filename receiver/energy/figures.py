"""A job's folder, read once the needed data is written."""

from pathlib import Path
from threading import Event

from emlio.energy.job.job_energy import Job, read_job
from emlio.energy.job.journal import JournalEpoch
from emlio.energy.recording.store import Store
from emlio.errors import ConfigError

__all__ = ["read_job_after"]

_LOOKS = 10
_BETWEEN_LOOKS_S = 0.1
"""A recorder returns a requested reading at once, and one of its threads writes it later."""


def read_job_after(folder: Path, epoch: JournalEpoch) -> Job:
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
