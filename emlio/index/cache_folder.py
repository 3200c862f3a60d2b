"""The folder of a dataset's indexes, in the user's cache folder or in one that the user names.

Hosts may share the cache folder, such as a home over NFS, and have different datasets at the same
path. So an index that lies on a network file system belongs to one host. That also keeps a host from
removing arrays that another one has mapped, which a network file system does not survive. On a disk
of the host its name does not count: that of a container changes with each start.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["cache_folder", "default_cache_dir"]

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


def default_cache_dir(environment: Mapping[str, str]) -> Path:
    """Return this user's cache folder: $XDG_CACHE_HOME/emlio, else ~/.cache/emlio."""
    given = environment.get("XDG_CACHE_HOME", "")
    # XDG says to ignore a relative path.
    return Path(given if given.startswith("/") else os.path.expanduser("~/.cache")) / "emlio"


def cache_folder(place: bytes, cache_dir: Path | None, *, host: str | None = None, mounts: str | None = None) -> Path:
    """Return the folder.

    Args:
        place: the dataset's folder or address.
        cache_dir: the cache folder; by default the user's.
        host: the name of this host, if not the system's.
        mounts: the table of mounts, if not the kernel's.
    """
    cache = default_cache_dir(os.environ) if cache_dir is None else cache_dir
    if is_shared(cache, mount_table() if mounts is None else mounts):
        place += b"\0" + os.fsencode(os.uname().nodename if host is None else host)
    return cache / hashlib.blake2b(place, digest_size=12).hexdigest()
