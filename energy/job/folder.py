"""The folder that holds a job's energy data on one node."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from emlio.energy.recording.edge import EdgeClient
from emlio.errors import TransportError

__all__ = ["alone", "recorder_socket", "shared_folder"]

_JOB = "job"
_LOOKED_AT = 8
"""Only the newest folders are searched; that of a running job is among them."""


def recorder_socket(folder: Path) -> Path:
    """Return the path of the recorder's socket in a job's folder."""
    return folder / "recorder.sock"


@contextmanager
def alone(path: Path) -> Generator[None]:
    """Hold an exclusive lock on a file or folder; other processes of the node wait for it."""
    lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if path.is_dir() else os.O_CREAT), 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextmanager
def shared_folder(parent: Path, job: str, now: datetime) -> Generator[Path]:
    """Find or create the folder emlio-energy-DATE-TIME of a job.

    All callers with the same job name get the same folder while one of them holds its recorder.

    Args:
        parent: the folder to create it in.
        job: a name that no other running job on this node has.
        now: gives a new folder its name.
    """
    with alone(parent):
        found = sorted(parent.glob("emlio-energy-*"), reverse=True)[:_LOOKED_AT]
        folder = next((one for one in found if _is_of(one, job)), None)
        if folder is None:
            folder = _made(parent / f"emlio-energy-{now:%Y%m%d-%H%M%S}")
            (folder / _JOB).write_text(job, encoding="utf-8")
        yield folder


def _is_of(folder: Path, job: str) -> bool:
    """Return whether the folder belongs to this job and its recorder is running."""
    try:
        if (folder / _JOB).read_text(encoding="utf-8") != job:
            return False
        EdgeClient(recorder_socket(folder)).close()
    except (OSError, TransportError):
        return False
    return True


def _made(wanted: Path) -> Path:
    """Create a folder of this name, with a number appended if it is taken."""
    folder, tries = wanted, 1
    while True:
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            tries += 1
            folder = wanted.with_name(f"{wanted.name}-{tries}")
