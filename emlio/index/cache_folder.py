"""The folder of a dataset's indexes, in the user's cache folder or in one that the user names.

Hosts may share the cache folder, such as a home over NFS, and have different datasets at the same
path. So an index that lies on a network file system belongs to one host. That also keeps a host from
removing arrays that another one has mapped, which a network file system does not survive. On a disk
of the host its name does not count: that of a container changes with each start.

Covers: the folder. Does not cover: what lies in it (emlio.index.range_index).
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from emlio.store.mounts import is_shared, mount_table

__all__ = ["cache_folder", "default_cache_dir"]


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
