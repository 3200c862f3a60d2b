"""The file systems that are mounted: which folders other hosts may use at the same time.

Covers: the kernel's table of mounts. Does not cover: file systems that are shared below another one,
such as an overlay of a network folder.
"""

import os
import re
from pathlib import Path
from typing import Final

__all__ = ["is_shared", "mount_table"]

_TABLE: Final = Path("/proc/self/mountinfo")
_SHARED: Final = frozenset(
    (
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "fuse",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "wekafs",
    )
)
_FUSE: Final = "fuse."
_OWN_FUSE: Final = frozenset(("fuse.fuse-overlayfs",))
"""FUSE file systems on a disk of the host. Most others bring files over a network."""


def mount_table() -> str:
    """Return the kernel's table; nothing where there is none."""
    try:
        return _TABLE.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def is_shared(path: Path, table: str) -> bool:
    """Return whether a path lies on a file system that several hosts may have mounted.

    Args:
        path: it need not exist.
        table: see `mount_table`.
    """
    real = Path(os.path.realpath(path))
    depth, kind = -1, ""
    for line in table.splitlines():
        words = line.split(" ")
        if len(words) < 5 or "-" not in words[5:-1]:
            continue
        point = Path(_plain(words[4]))
        # A later mount hides an earlier one at the same place.
        if real.is_relative_to(point) and len(point.parts) >= depth:
            depth, kind = len(point.parts), words[words.index("-", 5) + 1]
    return kind in _SHARED or (kind.startswith(_FUSE) and kind not in _OWN_FUSE)


def _plain(word: str) -> str:
    """Return a path as it is; the table writes a space as a backslash and 040."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), word)
