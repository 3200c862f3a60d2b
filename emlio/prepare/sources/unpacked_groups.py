"""Groups of records, such as the row groups of tables, unpacked on the disk while a source is open.

A conversion reads records in any order, and each from its group. Without this every record of a
large table would unpack a whole group again.

Covers: unpacking each group once, when it is first needed, and reading records of it. Does not
cover: making records of a group (emlio.shards.group_records).
"""

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from threading import Lock

from emlio.errors import DatasetError
from emlio.prepare.disk import disk_error
from emlio.prepare.sources.record_source import Stamp, stamp_of
from emlio.shards.dataset import Dataset
from emlio.shards.files.file_read import read_into
from emlio.shards.group_records import GroupMaker, on_descriptor
from emlio.shards.ranges.groups import FileGroups, Group

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
        table = self._dataset.file_table
        listed = Stamp(size_bytes=int(table.sizes[group.file]), mtime_ns=int(table.mtimes_ns[group.file]))
        source = table.path(group.file)
        if stamp_of(source) != listed:
            raise DatasetError(
                f"{source}: changed during the conversion: had {listed.size_bytes} bytes at the start. Run the same command "
                "again when the file is complete"
            )
        try:
            descriptor = self._dataset.folder.open(table.names[group.file])
        except OSError as error:
            raise DatasetError(f"{source}: cannot be read: {error.strerror or error}") from error
        try:
            made = self._maker.make(group, on_descriptor(descriptor))
        finally:
            os.close(descriptor)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made.data)
        except OSError as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise disk_error(path, made.nbytes, error) from error
