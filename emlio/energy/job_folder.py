"""The folder in which a job's energy lies on one node.

Covers: finding the one that another rank of the job has begun, or making one; its names. Does not cover: what lies in it
(emlio.energy.journal, emlio.energy.store).
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from emlio.energy.edge import EdgeClient
from emlio.errors import TransportError

__all__ = ["alone", "recorder_socket", "shared_folder"]

_JOB = "job"
_LOOKED_AT = 8
"""Of a folder with many jobs the last ones: one that is going on is among them."""


def recorder_socket(folder: Path) -> Path:
    """Where the recorder of a job's folder answers."""
    return folder / "recorder.sock"


@contextmanager
def alone(path: Path) -> Generator[None]:
    """Keep the other processes of a node waiting that want to be alone with the same file or folder."""
    lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if path.is_dir() else os.O_CREAT), 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextmanager
def shared_folder(parent: Path, job: str, now: datetime) -> Generator[Path]:
    """The folder emlio-energy-DATE-TIME of a job, the same for all who ask for it while one of them has its recorder.

    Args:
        parent: where it lies.
        job: a name that no other job on this node has meanwhile.
        now: names a new one.
    """
    with alone(parent):
        found = sorted(parent.glob("emlio-energy-*"), reverse=True)[:_LOOKED_AT]
        folder = next((one for one in found if _is_of(one, job)), None)
        if folder is None:
            folder = _made(parent / f"emlio-energy-{now:%Y%m%d-%H%M%S}")
            (folder / _JOB).write_text(job, encoding="utf-8")
        yield folder


def _is_of(folder: Path, job: str) -> bool:
    """Whether a job has it that goes on."""
    try:
        if (folder / _JOB).read_text(encoding="utf-8") != job:
            return False
        EdgeClient(recorder_socket(folder)).close()
    except (OSError, TransportError):
        return False
    return True


def _made(wanted: Path) -> Path:
    """A new folder of this name, or of one like it."""
    folder, tries = wanted, 1
    while True:
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            tries += 1
            folder = wanted.with_name(f"{wanted.name}-{tries}")
