"""What a loader's thread makes of a job's folder: figures and a report, once what they need is written.

Covers: waiting for the recorder's disk, daemons' answers as a journal has them. Does not cover: reading a folder
(emlio.energy.job), texts (emlio.energy.job_report).
"""

from pathlib import Path
from threading import Event

from emlio.energy.job import Job, read_job
from emlio.energy.journal import JournalEpoch, StorageEnergy
from emlio.energy.store import Store
from emlio.errors import ConfigError
from emlio.receiver.daemon_energy import DaemonEnergy

__all__ = ["read_job_after", "storage_of"]

_LOOKS = 10
_BETWEEN_LOOKS_S = 0.1
"""A recorder hands on a reading at once that it was asked for, and a thread of it writes it."""


def storage_of(daemon: DaemonEnergy) -> StorageEnergy:
    """What a daemon said, as a journal has it."""
    series = daemon.series
    return StorageEnergy(
        daemon=daemon.daemon,
        node=daemon.node,
        boot=daemon.boot,
        devices=() if series is None else series.devices,
        readings=() if series is None else series.readings,
        clock=daemon.clock,
        interval_ns=daemon.interval_ns,
        absent=daemon.absent,
    )


def read_job_after(folder: Path, epoch: JournalEpoch) -> Job:
    """A job's folder with the recording of this epoch in it, or as much of that as there is after a while.

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
    """Whether nothing more is to come of the time before that moment."""
    try:
        with Store(file) as store:
            if store.recording(number).ended_mono_ns is not None:
                return True
            last_ns = store.load(number, from_ns=to_ns).end_ns
    except ConfigError:
        return True  # whoever reads it will say so
    return last_ns is not None and last_ns >= to_ns
