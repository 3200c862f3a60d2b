"""Storage of indexes, beside the shards or in a cache folder.

The cache folder is used if the shards' folder cannot be written.

Covers: the two places, and whether a stored index still describes the shard. Does not cover: the
index file (emlio.shards.tfrecord.index), making one.

Beside each index lies a stamp, `<shard>.digest.json`: size, times and inode of the scanned file,
its digest, and a checksum of the index. An index whose stamp does not match the file is not used,
and the shard is scanned again (docs/internals/decisions/file-identity.md). Beside a mapped shard the stamp may
be missing, as after `emlio convert` or a copy: the index is then checked against the mapping.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c
from emlio.errors import DatasetError
from emlio.interrupts import is_interrupt
from emlio.shards.files.folder import Folder
from emlio.shards.tfrecord.index import index_name, open_index, write_index

__all__ = ["IndexStore", "KeptIndex", "default_cache_dir", "stamp_name"]

_STAMP_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stamp:
    """The file an index was made from."""

    size_bytes: int
    mtime_ns: int
    records: int
    digest: str
    index_crc: int
    ctime_ns: int | None = None
    inode: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptIndex:
    """An index and its digest.

    Attributes:
        offsets: start of each record's frame, and finally the file's size.
        digest: of the shard's content; None if only the mapping holds it.
    """

    offsets: npt.NDArray[np.int64]
    digest: str | None


def stamp_name(shard: str) -> str:
    """Return the stamp's file name for a shard's file name."""
    return f"{shard}.digest.json"


def default_cache_dir(environment: Mapping[str, str]) -> Path:
    """Return this user's cache folder: $XDG_CACHE_HOME/emlio, else ~/.cache/emlio."""
    given = environment.get("XDG_CACHE_HOME", "")
    # XDG says to ignore a relative path.
    return Path(given if given.startswith("/") else os.path.expanduser("~/.cache")) / "emlio"


class IndexStore:
    """The stored indexes of one dataset directory. Thread-safe for different shards."""

    def __init__(
        self,
        folder: Folder,
        cache_dir: Path | None = None,
        may_write: Callable[[Folder], bool] = Folder.may_write,
    ) -> None:
        """Open the index store of a folder.

        Args:
            folder: the dataset's. The code that opened it closes it, after this store.
            cache_dir: store new indexes under this folder. By default they are stored beside the
                shards if that folder can be written, else under the user's cache folder.
            may_write: returns whether a folder can be written.

        Raises:
            DatasetError: this dataset's cache folder is a link that leaves the cache.
        """
        absolute = os.path.abspath(folder.path)
        key = hashlib.blake2b(os.fsencode(absolute), digest_size=12).hexdigest()
        # The environment is read here, not by the commands: every opening must look in the same
        # place.
        self._cache_path = (default_cache_dir(os.environ) if cache_dir is None else cache_dir) / key
        self._beside = folder
        self._lock = Lock()
        self._cache: Folder | None = None
        try:
            self._cache = _open_cache(self._cache_path)
        except OSError as error:  # it does not exist yet, or belongs to another user and cannot be used
            if is_interrupt(error):
                raise
        elsewhere = "" if cache_dir is None else f" --cache-dir {cache_dir}"
        self._repair = f"emlio index --force{elsewhere} {absolute}"
        self._keep_beside = cache_dir is None and may_write(folder)

    def load(self, shard: str, status: os.stat_result, *, mapped: bool) -> KeptIndex | None:
        """Return the stored index of a shard whose file has this status, or None.

        Raises:
            DatasetError: the index is damaged.
        """
        # The cache comes first: an index is there only if the shards' folder could not be written,
        # or if the cache was requested.
        size_bytes = status.st_size
        for folder in (self._cache, self._beside):
            if folder is None:
                continue
            stamp = _read_stamp(folder, stamp_name(shard), self._repair)
            index = folder.path / index_name(shard)
            if stamp is None:
                if mapped and folder is self._beside and folder.has(index.name):
                    return KeptIndex(offsets=open_index(index, size_bytes, self._repair, folder.opener), digest=None)
            elif _identity(stamp) == _identity_of(status) and folder.has(index.name):
                offsets = open_index(index, size_bytes, self._repair, folder.opener)
                records, crc = len(offsets) - 1, _index_crc(offsets)
                if (records, crc) != (stamp.records, stamp.index_crc):
                    raise DatasetError(
                        f"index {index}: must have {stamp.records} records and CRC32C {stamp.index_crc:#010x} as in "
                        f"{stamp_name(shard)}, got {records} and {crc:#010x}. Rebuild it: {self._repair}"
                    )
                return KeptIndex(offsets=offsets, digest=stamp.digest)
        return None

    def save(
        self, shard: str, offsets: npt.NDArray[np.int64], status: os.stat_result, *, digest: str
    ) -> OSError | None:
        """Store an index and return None, or the error that prevented it.

        After an error the shard is scanned again at the next opening.
        """
        stamp = _Stamp(
            size_bytes=status.st_size,
            mtime_ns=status.st_mtime_ns,
            ctime_ns=status.st_ctime_ns,
            inode=status.st_ino,
            records=len(offsets) - 1,
            digest=digest,
            index_crc=_index_crc(offsets),
        )
        refusal: OSError | None = None
        if self._keep_beside and self._cache is not None:
            try:
                self._cache.remove(stamp_name(shard))
            except OSError as error:  # a cache that cannot be written is also not read first
                if is_interrupt(error):
                    raise
        for beside in (True, False) if self._keep_beside else (False,):
            try:
                folder = self._beside if beside else self._made_cache()
                # The old stamp is removed first: a stamp must never lie beside an index of another
                # file.
                folder.remove(stamp_name(shard))
                write_index(Path(index_name(shard)), offsets, dir_fd=folder.descriptor)
                folder.write(stamp_name(shard), (msgspec.json.encode(stamp),))
            except OSError as error:
                if is_interrupt(error):
                    raise
                refusal = error
            else:
                return None
        return refusal

    def _made_cache(self) -> Folder:
        """Return the cache folder; create it if it does not exist."""
        with self._lock:
            if self._cache is None:
                self._cache_path.mkdir(parents=True, exist_ok=True)
                self._cache = _open_cache(self._cache_path)
            return self._cache

    def close(self) -> None:
        """Close the cache folder. Closing again does nothing."""
        if self._cache is not None:
            self._cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open_cache(path: Path) -> Folder:
    """Open the dataset's cache folder.

    The parent was chosen by the operator and may be a link; the dataset's folder may not leave it.
    """
    with Folder(path.parent) as parent:
        return Folder(path, parent=parent)


def _identity(stamp: _Stamp) -> tuple[int | None, ...]:
    return stamp.size_bytes, stamp.mtime_ns, stamp.ctime_ns, stamp.inode


def _identity_of(status: os.stat_result) -> tuple[int | None, ...]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _index_crc(offsets: npt.NDArray[np.int64]) -> int:
    """Return a checksum that detects damage which leaves plausible offsets.

    It runs at the memory's speed, so it is checked at every opening.
    """
    return crc32c(np.ascontiguousarray(offsets, dtype="<i8").data)


def _read_stamp(folder: Folder, name: str, repair: str) -> _Stamp | None:
    path = folder.path / name
    try:
        with open(path, "rb", opener=folder.opener) as file:
            text = file.read(_STAMP_BYTES)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None  # another user's cache folder cannot be used
    except OSError as error:
        raise DatasetError(f"stamp {path}: cannot be read: {error.strerror or error}") from error
    try:
        return msgspec.json.decode(text, type=_Stamp)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DatasetError(f"stamp {path}: {error}. Rebuild it: {repair}") from error
