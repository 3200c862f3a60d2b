"""Making the records of one group of a file, such as a row group of a table.

Covers: reading it from an open file or an object, the length that it must have. Does not cover: the
form of the file (emlio.formats), groups kept for other readers (emlio.reading.group_cache).
"""

import io
import os
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from emlio.errors import DatasetError
from emlio.formats.registry import group_format
from emlio.objects.reader import ObjectReader
from emlio.shards.dataset import Dataset
from emlio.shards.objects.bucket import Bucket
from emlio.shards.objects.object_table import ObjectTable
from emlio.shards.ranges.groups import Group

__all__ = ["in_bucket", "on_descriptor", "read_grouped", "unpack_group"]

_KEPT = 4
"""Groups kept for each dataset that is read record by record: threads read in about the same place."""

_Kept = OrderedDict[Group, npt.NDArray[np.uint8]]

_kept: WeakKeyDictionary[Dataset, _Kept] = WeakKeyDictionary()
_lock = Lock()


def unpack_group(dataset: Dataset, group: Group, opened: io.RawIOBase) -> npt.NDArray[np.uint8]:
    """Return the bytes of a group's records, one after the other.

    Args:
        dataset: the dataset.
        group: one of its groups.
        opened: the group's file, see `on_descriptor` and `in_bucket`; closed.

    Raises:
        DatasetError: the file cannot be read, or has other records than when it was indexed.
    """
    path = str(dataset.files.path(group.file))
    maker = group_format(dataset.contents)
    if maker is None:
        raise AssertionError(f"format {dataset.contents.format} has no groups")
    with io.BufferedReader(opened) as file:
        made = maker.unpack(file, group.place, dataset.contents.settings, path)
    if len(made) != group.size_bytes:
        raise DatasetError(
            f"{path}: must be as it was when it was indexed, with {group.size_bytes} bytes of records in this group, "
            f"has {len(made)}"
        )
    return made


def on_descriptor(descriptor: int) -> io.RawIOBase:
    """Return a file with a position of its own, on a descriptor that others use too and close."""
    return _PositionedFile(descriptor)


def in_bucket(bucket: Bucket, table: ObjectTable, number: int) -> io.RawIOBase:
    """Return an object of a bucket as a file."""
    return ObjectReader(partial(bucket.read, table, number), table.size_bytes(number))


def read_grouped(
    dataset: Dataset, group: Group, opened: Callable[[], io.RawIOBase], out: memoryview, start: int
) -> int:
    """Fill `out` with the bytes of a record; return their number. A few groups are kept for the next ones.

    Args:
        dataset: the dataset.
        group: the record's.
        opened: opens the group's file; see `unpack_group`.
        out: as long as the record.
        start: where the record begins, among those of its file.

    Raises:
        DatasetError: see `unpack_group`.
    """
    with _lock:
        kept = _kept.setdefault(dataset, OrderedDict())
        made = kept.get(group)
    if made is None:
        made = unpack_group(dataset, group, opened())
        with _lock:
            kept[group] = made
            while len(kept) > _KEPT:
                kept.popitem(last=False)
    found = made[start - group.begin : start - group.begin + len(out)]
    out[:] = found.data
    return len(found)


class _PositionedFile(io.RawIOBase):
    """See `on_descriptor`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        got = os.preadv(self._descriptor, [buffer], self._at)
        self._at += got
        return got

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}.get(whence)
        if base is None:
            base = os.fstat(self._descriptor).st_size
        if base + offset < 0:
            raise ValueError(f"a position must not be negative, got {base + offset}")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at
