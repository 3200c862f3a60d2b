"""Mounts that a consumer left behind, because it was killed during a read."""

import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["mounts_below", "unmount_below"]

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
