"""An open dataset, in a folder or in a bucket: its shards, and where their records lie."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import ClosedError, DatasetError
from emlio.formats.contents import Contents
from emlio.index.checksums import Checksums
from emlio.index.groups import FileGroups
from emlio.native import NativeShards, is_used
from emlio.planner.catalog import ShardEntry
from emlio.store.folder_store import FolderStore
from emlio.store.store import Store

__all__ = ["Dataset", "Notes", "Shard"]

Notes = Callable[[int, npt.NDArray[np.int64]], Sequence[bytes]]
"""Returns what ranks are told of some records beside their bytes, by shard and numbers in it."""


class Shard(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Some records of a dataset, by name: ranges of one file, or whole files.

    Attributes:
        name: unique in the dataset.
        records: how many there are.
        size_bytes: of all of them, by which daemons share the work.
        digest: identifies their content, among other contents of the same name.
        starts: (records,) the byte of its file at which each begins.
        ends: (records,) the byte after its last one.
        first_file: the number of the file, or of the first record's.
        files: how many files belong to the shard.
        whole_files: whether each record is a file of its own.
    """

    name: str
    records: int
    size_bytes: int
    digest: str
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    first_file: int
    files: int = 1
    whole_files: bool = False

    def files_of(self, records: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the numbers of the files that hold these records."""
        if self.whole_files:
            return records + self.first_file
        return np.full(len(records), self.first_file, np.int64)

    def file_of(self, record: int) -> int:
        """Return the number of the file that holds a record."""
        return self.first_file + record if self.whole_files else self.first_file

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """(records + 1,) where each record begins, and where the last one ends; they follow each other."""
        return np.append(self.starts, self.ends[-1:] if self.records else 0)


class Dataset:
    """The open shards of one directory or bucket. Immutable until `close`, so threads may share it.

    Attributes:
        name: its name in sessions.
        files: the files that hold the records.
        missing: names of the dataset's other shards.
        contents: the format of its records, and what is known of them.
        checksums: of the records; None if they are framed.
        notes: what ranks are told of records beside their bytes, if anything.
        groups: of its files, if records are made of groups and are no ranges of files.
        chosen: whether the operator chose some of the files in its folder.
    """

    def __init__(
        self,
        *,
        name: str,
        files: Store,
        shards: tuple[Shard, ...],
        contents: Contents,
        missing: tuple[str, ...] = (),
        checksums: Checksums | None = None,
        notes: Notes | None = None,
        groups: FileGroups | None = None,
        chosen: bool = False,
    ) -> None:
        """See the class. The files are closed with the dataset; the shards are sorted by name."""
        self.name = name
        self.files = files
        self.missing = missing
        self.contents = contents
        self.checksums = checksums
        self.notes = notes
        self.groups = groups
        self.chosen = chosen
        self._shards: tuple[Shard, ...] | None = shards
        self._native: NativeShards | None = None
        self._entries = tuple(
            ShardEntry(name=shard.name, records=shard.records, size_bytes=shard.size_bytes, digest=shard.digest)
            for shard in shards
        )

    @property
    def place(self) -> str:
        """Its path or address, for people."""
        return self.files.shown

    @property
    def framed(self) -> bool:
        """True if each record lies in a frame with its checksums."""
        return self.checksums is None

    @property
    def folder_store(self) -> FolderStore:
        """Its files, for what only those in a folder have.

        Raises:
            DatasetError: it lies in a bucket.
        """
        if not isinstance(self.files, FolderStore):
            raise DatasetError(f"{self.place}: must lie in a folder of this host for this")
        return self.files

    @property
    def shard_paths(self) -> tuple[Path, ...]:
        """The file of each shard in a folder, of files that are records of the first one."""
        return tuple(self.folder_store.path(shard.first_file) for shard in self.shards)

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards on this host, sorted by name."""
        if self._shards is None:
            raise ClosedError(f"dataset {self.name!r} is closed")
        return self._shards

    def locate(
        self, numbers: npt.NDArray[np.int64], records: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return each record's file, and where it begins and ends there.

        Args:
            numbers: (n,) which of the shards each record lies in.
            records: (n,) its number in that shard.
        """
        shards, table = self.shards, self._native
        if table is None and is_used():
            # Two threads may do it at once, to the same effect.
            starts, ends = [shard.starts for shard in shards], [shard.ends for shard in shards]
            firsts, steps = [shard.first_file for shard in shards], [int(shard.whole_files) for shard in shards]
            table = self._native = NativeShards(starts, ends, firsts, steps)
        found = table.locate(numbers, records) if table is not None else None
        return _located(shards, numbers, records) if found is None else found

    def where(self, number: int, record: int) -> tuple[str, int]:
        """Return the path of the file that holds a record of a shard, for people, and the byte at which it begins."""
        shard = self.shards[number]
        return str(self.files.path(shard.file_of(record))), int(shard.starts[record])

    @property
    def records(self) -> int:
        """The number of records in the shards on this host."""
        return sum(shard.records for shard in self.shards)

    @property
    def size_bytes(self) -> int:
        """The total size of the shards' files."""
        return sum(shard.size_bytes for shard in self.shards)

    @property
    def entries(self) -> tuple[ShardEntry, ...]:
        """The planner's entries for the shards on this host, in the same order."""
        return self._entries

    def close(self) -> None:
        """Release the index and the files. Closing again does nothing.

        A mapped index is unmapped with the last array that uses it.
        """
        self._shards = self._native = None
        self.files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _located(
    shards: Sequence[Shard], numbers: npt.NDArray[np.int64], records: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """See `Dataset.locate`."""
    files, starts, ends = (np.empty(len(records), np.int64) for _ in range(3))
    order = np.argsort(numbers, kind="stable")
    grouped = numbers[order]
    edges = [0, *(np.flatnonzero(grouped[1:] != grouped[:-1]) + 1).tolist(), len(grouped)]
    for begin, end in pairwise(edges):
        if begin == end:
            continue
        group = order[begin:end]
        number = int(grouped[begin])
        shard = shards[number]
        of_group = records[group]
        files[group] = shard.files_of(of_group)
        starts[group] = shard.starts[of_group]
        ends[group] = shard.ends[of_group]
    return files, starts, ends
