"""Temporary folders that hold keys, and are removed also after a process that was killed.

A process holds a lock on each of its folders. The kernel releases it when the process ends, however
it ends, so a folder whose lock is free is a leftover. This holds between containers that share
/tmp, where the number of a process would say nothing.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

__all__ = ["mounts_below", "remove_leftovers", "scratch_folder", "unmount_below"]

_TABLE: Final = Path("/proc/self/mountinfo")
_WAYS: Final = (("fusermount3", "-u", "-z"), ("umount", "-l"))
"""The commands to unmount.

The first works for the user who mounted a FUSE file system, the second for root and any file
system.
"""


def mounts_below(folder: Path, table: str | None = None) -> tuple[Path, ...]:
    """Return the mount points below a folder, the latest first.

    Args:
        folder: absolute path.
        table: contents of /proc/self/mountinfo; None to read it.
    """
    lines = (_TABLE.read_text(encoding="utf-8") if table is None else table).splitlines()
    points = [Path(_plain(line.split(" ")[4])) for line in lines]
    return tuple(point for point in reversed(points) if point.is_relative_to(folder) and point != folder)


def _plain(word: str) -> str:
    """Decode a path of the table, which writes a space as a backslash and 040."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), word)


def unmount_below(folder: Path) -> None:
    """Unmount everything below a folder, even if its server does not answer any more."""
    for point in mounts_below(folder):
        for way in _WAYS:
            with suppress(OSError):
                if subprocess.run([*way, str(point)], check=False, capture_output=True).returncode == 0:
                    break


_PREFIX: Final = "emlio-race-"
_KINDS: Final = ("client", "ssh")
_LEAST_AGE_S: Final = 60.0
"""A younger folder may be one whose process is about to lock it."""


@contextmanager
def scratch_folder(kind: str) -> Generator[Path, None, None]:
    """Make a folder that is removed at the end of the block, with everything mounted below it.

    Args:
        kind: purpose of the folder, "client" or "ssh".
    """
    if kind not in _KINDS:
        raise ValueError(f"a scratch folder must be for one of {', '.join(_KINDS)}, got {kind!r}")
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{kind}-", ignore_cleanup_errors=True) as name:
        lock = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            unmount_below(Path(name))
            os.close(lock)


def remove_leftovers(least_age_s: float = _LEAST_AGE_S) -> tuple[Path, ...]:
    """Remove this user's folders whose process has ended, and return them.

    Args:
        least_age_s: younger folders stay.
    """
    removed: list[Path] = []
    for kind in _KINDS:
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{kind}-*"):
            if _is_left_over(folder, least_age_s):
                unmount_below(folder)
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
    return tuple(removed)


def _is_left_over(folder: Path, least_age_s: float) -> bool:
    with suppress(OSError):  # it has just been removed, is a link, or is locked
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            facts = os.fstat(descriptor)
            if facts.st_uid != os.getuid() or time.time() - facts.st_mtime < least_age_s:
                return False
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        finally:
            os.close(descriptor)
    return False
