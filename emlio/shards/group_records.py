"""Making the records of one group of a file, such as a row group of a table.

Covers: reading it from an open file or an object, the length that it must have. Does not cover: the
form of the file (emlio.formats), groups kept for other readers (emlio.reading.group_cache).
"""

import io
import os
from collections import OrderedDict
from functools import partial
from threading import Lock

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

__all__ = ["GroupMaker", "in_bucket", "on_descriptor"]

_MOST_FILES = 64
"""Files of which what all their groups need, such as a table's footer, is kept."""


class GroupMaker:
    """Makes the groups of a dataset. Thread-safe."""

    def __init__(self, dataset: Dataset) -> None:
        """See the class; the dataset is one of groups."""
        maker = group_format(dataset.contents)
        if maker is None:
            raise AssertionError(f"format {dataset.contents.format} has no groups")
        self._dataset = dataset
        self._format = maker
        self._common: OrderedDict[int, object] = OrderedDict()
        self._lock = Lock()

    def make(self, group: Group, opened: io.RawIOBase) -> npt.NDArray[np.uint8]:
        """Return the bytes of a group's records, one after the other.

        Args:
            group: one of the dataset's groups.
            opened: its file, found unchanged since it was indexed; see `on_descriptor` and
                `in_bucket`; closed.

        Raises:
            DatasetError: the file cannot be read, or has other records than when it was indexed.
        """
        path, settings = str(self._dataset.files.path(group.file)), self._dataset.contents.settings
        with io.BufferedReader(opened) as file:
            with self._lock:
                common = self._common.get(group.file)
            if common is None:
                common = self._format.common(file, path)
                with self._lock:
                    self._common[group.file] = common
                    while len(self._common) > _MOST_FILES:
                        self._common.popitem(last=False)
            made = self._format.unpack(file, group.place, settings, path, common)
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
