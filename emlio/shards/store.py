"""Where indexes are kept: beside the shards, or in a cache folder where the shards' folder cannot be written.

Covers: the two places, and whether what lies there still describes the shard. Does not cover: the index file
(emlio.shards.index), making one.

Beside each index lies a stamp, `<shard>.digest.json`: the size and time of the file that was scanned, its digest, and a
checksum of the index. An index whose stamp names another size or time is not used. Beside a mapped shard the stamp
may be missing, as after `emlio convert` or a copy: the mapping then says what the index must hold.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c
from emlio.errors import DatasetError
from emlio.shards.atomic_file import write_atomically
from emlio.shards.index import index_name, open_index, write_index

__all__ = ["IndexStore", "KeptIndex", "default_cache_dir", "stamp_name"]

_LOG = logging.getLogger(__name__)
_STAMP_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stamp:
    """The file an index was made from."""

    size_bytes: int
    mtime_ns: int
    records: int
    digest: str
    index_crc: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptIndex:
    """An index and the digest that belongs to it.

    Attributes:
        offsets: start of each record's frame, and last the file's size.
        digest: of the shard's content; None where only the mapping knows it.
    """

    offsets: npt.NDArray[np.int64]
    digest: str | None


def stamp_name(shard: str) -> str:
    """The stamp's file name for a shard's file name."""
    return f"{shard}.digest.json"


def default_cache_dir(environment: Mapping[str, str]) -> Path:
    """Where this user's caches lie: $XDG_CACHE_HOME/emlio, else ~/.cache/emlio."""
    given = environment.get("XDG_CACHE_HOME", "")
    # The XDG rules: a relative path is to be ignored.
    return Path(given if given.startswith("/") else os.path.expanduser("~/.cache")) / "emlio"


def _may_write(directory: Path) -> bool:
    return os.access(directory, os.W_OK | os.X_OK)


class IndexStore:
    """The kept indexes of one dataset directory. Thread-safe for different shards."""

    def __init__(
        self, directory: Path, cache_dir: Path | None = None, may_write: Callable[[Path], bool] = _may_write
    ) -> None:
        """See the class.

        Args:
            directory: the dataset's.
            cache_dir: keep new indexes under this folder, not beside the shards; by default beside them where that
            can be
                written, else under the user's cache folder.
            may_write: whether a folder can be written.
        """
        absolute = os.path.abspath(directory)
        key = hashlib.blake2b(os.fsencode(absolute), digest_size=12).hexdigest()
        # The environment is read here, not by the commands: every opening must look in the same place.
        self._cache = (default_cache_dir(os.environ) if cache_dir is None else cache_dir) / key
        self._beside = Path(absolute)
        elsewhere = "" if cache_dir is None else f" --cache-dir {cache_dir}"
        self._repair = f"emlio index --force{elsewhere} {absolute}"
        self._keep_beside = cache_dir is None and may_write(directory)

    def load(self, shard: str, *, size_bytes: int, mtime_ns: int, mapped: bool) -> KeptIndex | None:
        """The kept index of a shard with this size and time, or None where there is none.

        Raises:
            DatasetError: there is one, and it is damaged.
        """
        # The cache first: where it has an index, the folder could not be written when one was made, or one was asked
        # for.
        for folder in (self._cache, self._beside):
            stamp = _read_stamp(folder / stamp_name(shard), self._repair)
            index = folder / index_name(shard)
            if stamp is None:
                if mapped and folder is self._beside and index.exists():
                    return KeptIndex(offsets=open_index(index, size_bytes, self._repair), digest=None)
            elif stamp.size_bytes == size_bytes and stamp.mtime_ns == mtime_ns and index.exists():
                offsets = open_index(index, size_bytes, self._repair)
                records, crc = len(offsets) - 1, _index_crc(offsets)
                if (records, crc) != (stamp.records, stamp.index_crc):
                    raise DatasetError(
                        f"index {index}: must hold {stamp.records} records and have the CRC32C {stamp.index_crc:#010x} "
                        f"by {stamp_name(shard)}, holds {records} and has {crc:#010x}. "
                        f"Rebuild it: {self._repair}"
                    )
                return KeptIndex(offsets=offsets, digest=stamp.digest)
        return None

    def save(self, shard: str, offsets: npt.NDArray[np.int64], *, size_bytes: int, mtime_ns: int, digest: str) -> bool:
        """Keep an index and return whether that was possible.

        Where it was not, the log says so and the shard is scanned again at the next opening.
        """
        stamp = _Stamp(
            size_bytes=size_bytes,
            mtime_ns=mtime_ns,
            records=len(offsets) - 1,
            digest=digest,
            index_crc=_index_crc(offsets),
        )
        refusal: OSError | None = None
        if self._keep_beside:
            with suppress(OSError):  # a cache that cannot be written, or is none, is not found first either
                (self._cache / stamp_name(shard)).unlink()
        for folder in (self._beside, self._cache) if self._keep_beside else (self._cache,):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                # The old stamp goes first: at no moment may a stamp stand beside an index of another file.
                (folder / stamp_name(shard)).unlink(missing_ok=True)
                write_index(folder / index_name(shard), offsets)
                write_atomically(folder / stamp_name(shard), (msgspec.json.encode(stamp),))
            except OSError as error:
                refusal = error
            else:
                return True
        _LOG.warning("the index of %s cannot be kept and is built again at every start: %s", shard, refusal)
        return False


def _index_crc(offsets: npt.NDArray[np.int64]) -> int:
    """Finds the damage that leaves plausible offsets; at the memory's speed, so it is checked at every opening."""
    return crc32c(np.ascontiguousarray(offsets, dtype="<i8").data)


def _read_stamp(path: Path, repair: str) -> _Stamp | None:
    try:
        with path.open("rb") as file:
            text = file.read(_STAMP_BYTES)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None  # another user's cache folder is as good as none
    except OSError as error:
        raise DatasetError(f"stamp {path}: cannot be read: {error.strerror or error}") from error
    try:
        return msgspec.json.decode(text, type=_Stamp)
    except msgspec.MsgspecError as error:
        raise DatasetError(f"stamp {path}: {error}. Rebuild it: {repair}") from error
