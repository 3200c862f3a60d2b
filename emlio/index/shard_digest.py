"""The digest of a shard whose format has none: of names, sizes, ranges, and a few of its bytes.

All bytes would take too long. Some of them tell apart nearly all contents that are as long, such as
arrays of one shape.
"""

import hashlib
import os
from bisect import bisect_right
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.format import Files, Ranges, ShardFiles
from emlio.formats.registry import format_named
from emlio.index.groups import has_groups
from emlio.index.range_index import RangeIndex
from emlio.store.folder import HOW_TO_RENEW, Folder
from emlio.store.folder_store import FolderStore

__all__ = ["ContentCheck", "shard_digest"]

_SAMPLES = 4
_SAMPLE_BYTES = 4096


def shard_digest(
    format_name: str,
    settings: bytes,
    files: Files,
    labels: npt.NDArray[np.int32] | None,
    shard: ShardFiles,
    ranges: Ranges | None,
) -> str:
    """Return the digest.

    Args:
        format_name: the name of the format.
        settings: see `Contents`.
        files: those that the shard's numbers are of.
        labels: of these files, if they have some.
        shard: the shard.
        ranges: of its records; None if each file is one record.
    """
    if ranges is not None and ranges.digest:
        return ranges.digest
    digest = hashlib.blake2b(f"{format_name}/1/".encode() + settings, digest_size=16)
    for number in shard.files:
        encoded = os.fsencode(files.names[number])
        digest.update(len(encoded).to_bytes(4, "little") + encoded + int(files.sizes[number]).to_bytes(8, "little"))
    if labels is not None:
        digest.update(np.ascontiguousarray(labels[np.asarray(shard.files)], "<i4").data)
    if ranges is not None:
        digest.update(np.ascontiguousarray(ranges.starts, "<i8").data)
        digest.update(np.ascontiguousarray(ranges.ends, "<i8").data)
    if not shard.whole_files:
        size = int(files.sizes[shard.files[0]])
        for sample in _samples(files, shard.files[0], _sampled(size - _SAMPLE_BYTES)):
            digest.update(sample)
    else:
        for place in _sampled(len(shard.files) - 1):
            tail = int(files.sizes[shard.files[place]]) - _SAMPLE_BYTES
            for sample in _samples(files, shard.files[place], [0, tail]):
                digest.update(sample)
    return digest.hexdigest()


def _samples(files: Files, number: int, begins: list[int]) -> list[bytes]:
    """Return bytes of a file. One that is hardly larger than its samples is opened and read once."""
    begins = [max(begin, 0) for begin in begins]
    size = int(files.sizes[number])
    if size > _SAMPLES * _SAMPLE_BYTES:
        return [files.read(number, begin, _SAMPLE_BYTES) for begin in begins]
    whole = files.read(number, 0, size)
    return [whole[begin : begin + _SAMPLE_BYTES] for begin in begins]


def _sampled(last: int) -> list[int]:
    """Return the numbers that stand for all from 0 to the last one."""
    return sorted({last * part // (_SAMPLES - 1) for part in range(_SAMPLES)})


class ContentCheck:
    """Looks at files of which only the ctime has changed. Thread-safe.

    That happens by a `chmod`, or when other bytes were written and the mtime was set back. The bytes
    that are part of a digest tell; others are compared with kept checksums, record by record.
    """

    def __init__(self, index: RangeIndex, on_change: Callable[[], None]) -> None:
        """See the class.

        Args:
            index: of the files.
            on_change: called when a file holds other bytes.
        """
        self._index = index
        self._firsts = [row.first_file for row in index.about.shards]
        self._on_change = on_change

    def check(self, number: int, folder: Folder) -> None:
        """Compare a file.

        Raises:
            DatasetError: it holds other bytes, or cannot be read.
        """
        about = self._index.about
        place = bisect_right(self._firsts, number) - 1
        row = about.shards[place]
        if row.whole_files and number - row.first_file not in _sampled(row.files - 1):
            return
        store = FolderStore.stored(folder, self._index.arrays)
        files = range(row.first_file, row.first_file + row.files)
        shard = ShardFiles(name=row.name, files=files, whole_files=row.whole_files)
        ranges: Ranges | None = None
        if about.framed:
            ranges = format_named(about.format).ranges(store, shard, about.settings)
        elif not row.whole_files or has_groups(self._index.arrays):
            starts, ends = self._index.ranges(place)
            ranges = Ranges(starts=starts, ends=ends)
        now = shard_digest(about.format, about.settings, store, self._index.arrays.get("labels"), shard, ranges)
        if now != row.digest:
            self._on_change()
            raise DatasetError(
                f"shard {store.path(number)}: changed while it was served: its content had digest {row.digest}, now "
                f"{now}. {HOW_TO_RENEW}"
            )
