"""Groups of records, such as the row groups of tables, unpacked on the disk while a source is open.

A conversion reads records in any order, and each from its group. Without this every record of a
large table would unpack a whole group again.

Covers: unpacking each group once, when it is first needed, and reading records of it. Does not
cover: making records of a group (emlio.reading.group_maker).
"""

import io
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import cast

from emlio.errors import DatasetError
from emlio.index.dataset import Dataset
from emlio.index.groups import FileGroups, Group
from emlio.prepare.disk import disk_error
from emlio.prepare.sources.record_source import check_listed
from emlio.reading.group_maker import GroupMaker
from emlio.store.file_read import read_into

__all__ = ["UnpackedGroups"]


class UnpackedGroups:
    """The groups of a dataset, which threads may share. Its owner removes the folder."""

    def __init__(self, dataset: Dataset, groups: FileGroups, folder: Path) -> None:
        """Unpack nothing yet.

        Args:
            dataset: an open one.
            groups: of its files.
            folder: for the unpacked groups; made if it does not exist.
        """
        self._dataset = dataset
        self._groups = groups
        self._maker = GroupMaker(dataset)
        self._folder = folder
        self._lock = Lock()
        self._locks: defaultdict[Group, Lock] = defaultdict(Lock)
        self._unpacked: set[Group] = set()

    def read(self, file: int, start: int, size_bytes: int) -> bytes:
        """Return a record.

        Args:
            file: the number of its file.
            start: where it begins, among the records of the file.
            size_bytes: its length.

        Raises:
            DatasetError: the file cannot be read or has changed, or the disk is full.
        """
        group = self._groups.at(file, start)
        path = self._folder / f"group-{file}-{group.place}"
        with self._lock:
            one_group = self._locks[group]
        with one_group:
            if group not in self._unpacked:
                self._unpack(group, path)
                self._unpacked.add(group)
        record = bytearray(size_bytes)
        try:
            with path.open("rb", buffering=0) as opened:
                got = read_into(opened.fileno(), memoryview(record), start - group.begin, path)
        except OSError as error:
            raise DatasetError(f"{path}: cannot be read: {error.strerror or error}") from error
        if got < size_bytes:
            raise DatasetError(f"{path}: must have at least {start - group.begin + size_bytes} bytes, was shortened")
        return bytes(record)

    def _unpack(self, group: Group, path: Path) -> None:
        store = self._dataset.folder_store
        check_listed(store, group.file)
        with cast("io.RawIOBase", store.open(group.file)) as file:
            made = self._maker.make(group, file)
        check_listed(store, group.file)  # again: it may have been rewritten meanwhile
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made.data)
        except OSError as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise disk_error(path, made.nbytes, error) from error
