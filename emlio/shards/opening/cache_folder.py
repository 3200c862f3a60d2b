"""The folder of a dataset's indexes, in the user's cache folder or in one that the user names.

Hosts may share the cache folder, such as a home over NFS, and have different datasets at the same
path. So an index that lies on a network file system belongs to one host. That also keeps a host from
removing arrays that another one has mapped, which a network file system does not survive. On a disk
of the host its name does not count: that of a container changes with each start.

Covers: the folder. Does not cover: what lies in it (emlio.shards.ranges.index), indexes of TFRecord
files in a folder (emlio.shards.tfrecord.store).
"""

import hashlib
import os
from pathlib import Path

from emlio.shards.files.mounts import is_shared, mount_table
from emlio.shards.tfrecord.store import default_cache_dir

__all__ = ["cache_folder"]


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
