"""Mounts that a consumer left behind: one that is cut in the midst of a read cannot undo its own.

Covers: finding and undoing what is mounted below a folder. Does not cover: mounting (emlio.benchmarks.race.consumers.mounted).
"""

import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["mounts_below", "unmount_below"]

_TABLE: Final = Path("/proc/self/mountinfo")
_WAYS: Final = (("fusermount3", "-u", "-z"), ("umount", "-l"))
"""The first is for whoever mounted a FUSE file system, root or not; the second for root and everything else."""


def mounts_below(folder: Path, table: str | None = None) -> tuple[Path, ...]:
    """Where something is mounted below a folder, the last one first.

    Args:
        folder: absolute.
        table: what /proc/self/mountinfo says; None to look.
    """
    lines = (_TABLE.read_text(encoding="utf-8") if table is None else table).splitlines()
    points = [Path(_plain(line.split(" ")[4])) for line in lines]
    return tuple(point for point in reversed(points) if point.is_relative_to(folder) and point != folder)


def _plain(word: str) -> str:
    """A path as it is; a blank stands in the table as a backslash and 040."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), word)


def unmount_below(folder: Path) -> None:
    """Undo them, also where nobody answers any more."""
    for point in mounts_below(folder):
        for way in _WAYS:
            with suppress(OSError):
                if subprocess.run([*way, str(point)], check=False, capture_output=True).returncode == 0:
                    break
