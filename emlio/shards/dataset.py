"""An open dataset, in a folder or in a bucket: its shards, and where their records lie.

Covers: the values. Does not cover: opening one (emlio.shards.opening.choice), reading records
(emlio.reading), joining the shards of several hosts (emlio.planner.catalog).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from emlio.errors import ClosedError, DatasetError
from emlio.formats.contents import TFRECORD, Contents
from emlio.native import NativeShards, is_used
from emlio.planner.catalog import ShardEntry
from emlio.shards.files.file_table import FileTable
from emlio.shards.files.folder import HOW_TO_RENEW, Folder
from emlio.shards.objects.bucket import Bucket
from emlio.shards.objects.object_table import ObjectTable
from emlio.shards.ranges.checksums import Checksums
from emlio.shards.ranges.groups import FileGroups
from emlio.shards.tfrecord.mapping import ShardMapping, content_digest
from emlio.shards.tfrecord.scan import scan

__all__ = ["Dataset", "Notes", "RangeShard", "Shard", "ShardRanges"]

Notes = Callable[[int, npt.NDArray[np.int64]], Sequence[bytes]]
"""Returns what ranks are told of some records beside their bytes, by shard and numbers in it."""


class ShardRanges(Protocol):
    """Some records of a dataset, by name, and where each of them lies.

    Attributes:
        name: unique in the dataset.
        records: how many there are.
        size_bytes: of all of them, by which daemons share the work.
        digest: identifies their content, among other contents of the same name.
        starts: (records,) the byte of its file at which each begins.
        ends: (records,) the byte after its last one.
    """

    @property
    def name(self) -> str:
        """See the class."""
        ...

    @property
    def records(self) -> int:
        """See the class."""
        ...

    @property
    def size_bytes(self) -> int:
        """See the class."""
        ...

    @property
    def digest(self) -> str:
        """See the class."""
        ...

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """See the class."""
        ...

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        """See the class."""
        ...

    def files_of(self, number: int, records: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the numbers of the files that hold these records; `number` is that of the shard."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """One shard's file, as it was when the dataset was opened.

    Attributes:
        name: the file's name.
        path: for people; the file is opened by its name in the dataset's folder.
        size_bytes: its size.
        mtime_ns: time of the last change of its content.
        inode: its number in its file system.
        ctime_ns: time of the last change of content or metadata, which no program can set back.
        records: how many records it holds.
        digest: of its content, see `emlio.shards.tfrecord.mapping`.
        offsets: start of each record's frame, and finally the file's size; possibly mapped,
            read-only.
        mapping: its description, if there is one.
    """

    name: str
    path: Path
    size_bytes: int
    mtime_ns: int
    inode: int
    ctime_ns: int
    records: int
    digest: str
    offsets: npt.NDArray[np.int64]
    mapping: ShardMapping | None = None

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """See `ShardRanges`."""
        return self.offsets[:-1]

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        """See `ShardRanges`."""
        return self.offsets[1:]

    def files_of(self, number: int, records: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """See `ShardRanges`. A TFRecord shard is one file of the same number."""
        return np.full(len(records), number, np.int64)

    def check_content(self, folder: Folder) -> None:
        """Scan the file again after its ctime changed.

        The ctime changes, for example, after `chmod` or when a time is set back.

        Raises:
            DatasetError: it holds other records.
        """
        digest = content_digest(scan(self.path, None, folder.opener))
        if digest != self.digest:
            raise DatasetError(
                f"shard {self.path}: changed while it was served: its content had digest {self.digest}, now "
                f"{digest}. {HOW_TO_RENEW}"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RangeShard:
    """Records that are ranges of one file, or whole files. See `ShardRanges`.

    Attributes:
        name: see `ShardRanges`.
        records: see `ShardRanges`.
        size_bytes: see `ShardRanges`.
        digest: see `ShardRanges`.
        starts: see `ShardRanges`.
        ends: see `ShardRanges`.
        first_file: the number of the file, or of the first record's.
        whole_files: whether each record is a file of its own.
    """

    name: str
    records: int
    size_bytes: int
    digest: str
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    first_file: int
    whole_files: bool = False

    def files_of(self, number: int, records: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """See `ShardRanges`."""
        if self.whole_files:
            return records + self.first_file
        return np.full(len(records), self.first_file, np.int64)


class Dataset:
    """The open shards of one directory or bucket. Immutable until `close`, so threads may share it."""

    def __init__(
        self,
        *,
        name: str,
        folder: Folder | Bucket,
        shards: "tuple[Shard, ...] | tuple[RangeShard, ...]",
        missing: tuple[str, ...],
        files: FileTable | ObjectTable | None = None,
        contents: Contents = TFRECORD,
        checksums: Checksums | None = None,
        notes: Notes | None = None,
        groups: FileGroups | None = None,
    ) -> None:
        """Create a dataset from its parts.

        Args:
            name: its name in sessions.
            folder: its folder or bucket; closed with the dataset.
            shards: those on this host, sorted by name.
            missing: names of the dataset's other shards.
            files: the files that hold the records; by default one for each TFRecord shard.
            contents: the format of its records, and what is known of them.
            checksums: of the records, if their format has none.
            notes: what ranks are told of records beside their bytes, if anything.
            groups: of its files, if records are made of groups and are no ranges of files.
        """
        self.name = name
        self._origin = folder
        self.missing = missing
        self.contents = contents
        self.checksums = checksums
        self.notes = notes
        self.groups = groups
        self._shards: tuple[ShardRanges, ...] | None = shards
        self._native: NativeShards | None = None
        if files is None:
            files = _shard_files(self.folder, [one for one in shards if isinstance(one, Shard)])
        self.files = files
        self._entries = tuple(
            ShardEntry(name=shard.name, records=shard.records, size_bytes=shard.size_bytes, digest=shard.digest)
            for shard in shards
        )

    @property
    def place(self) -> str:
        """Its path or address, for people."""
        return self._origin.shown

    @property
    def bucket(self) -> Bucket | None:
        """Its bucket; None if it lies in a folder."""
        return self._origin if isinstance(self._origin, Bucket) else None

    @property
    def folder(self) -> Folder:
        """Its folder, for what only folders have.

        Raises:
            DatasetError: it lies in a bucket.
        """
        if not isinstance(self._origin, Folder):
            raise DatasetError(f"{self.place}: must lie in a folder of this host for this")
        return self._origin

    @property
    def file_table(self) -> FileTable:
        """Its files, for what only those in a folder have.

        Raises:
            DatasetError: it lies in a bucket.
        """
        if not isinstance(self.files, FileTable):
            raise DatasetError(f"{self.place}: must lie in a folder of this host for this")
        return self.files

    def has_same_files(self, other: "Dataset") -> bool:
        """Return whether another opening found the same place and the same files there, one by one."""
        here, there = self.files, other.files
        if isinstance(here, ObjectTable) and isinstance(there, ObjectTable):
            return here.is_same(there)
        if self.bucket is not None or other.bucket is not None or len(here) != len(there):
            return False
        columns = ("sizes", "mtimes_ns", "inodes")
        mine, theirs = self.file_table, other.file_table
        return self.folder.is_same(other.folder) and all(
            np.array_equal(getattr(mine, column), getattr(theirs, column)) for column in columns
        )

    @property
    def directory(self) -> Path:
        """The path of its folder when it was opened; see `folder`."""
        return self.folder.path

    @property
    def shards(self) -> tuple[ShardRanges, ...]:
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
            table = self._native = NativeShards(starts, ends, *_file_numbers(shards))
        found = table.locate(numbers, records) if table is not None else None
        return _located(shards, numbers, records) if found is None else found

    @property
    def tfrecord_shards(self) -> tuple[Shard, ...]:
        """The shards, for what only TFRecord files have.

        Raises:
            DatasetError: it has another format.
        """
        shards = tuple(shard for shard in self.shards if isinstance(shard, Shard))
        if self.contents.format != TFRECORD.format:
            raise DatasetError(f"{self.place} must hold TFRecord files for this, its format is {self.contents.format}")
        if len(shards) < len(self.shards):
            raise DatasetError(f"{self.place}: must lie in a folder of this host for this")
        return shards

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
        """Release the indexes and the folder. Closing again does nothing.

        A mapped index is unmapped with the last array that uses it.
        """
        self._shards = self._native = None
        self._origin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _file_numbers(shards: Sequence[ShardRanges]) -> tuple[list[int], list[int]]:
    """Return for each shard the file of its first record, and by how much that rises from record to record."""
    firsts, steps = list[int](), list[int]()
    for number, shard in enumerate(shards):
        first, second = shard.files_of(number, np.arange(2, dtype=np.int64)).tolist()
        firsts.append(first)
        steps.append(second - first)
    return firsts, steps


def _located(
    shards: Sequence[ShardRanges], numbers: npt.NDArray[np.int64], records: npt.NDArray[np.int64]
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
        files[group] = shard.files_of(number, of_group)
        starts[group] = shard.starts[of_group]
        ends[group] = shard.ends[of_group]
    return files, starts, ends


def _shard_files(folder: Folder, shards: Sequence[Shard]) -> FileTable:
    """Return the files of TFRecord shards."""

    def check(number: int, inside: Folder) -> None:
        shards[number].check_content(inside)

    return FileTable(
        folder=folder.path,
        names=[shard.name for shard in shards],
        sizes=np.array([shard.size_bytes for shard in shards], np.int64),
        mtimes_ns=np.array([shard.mtime_ns for shard in shards], np.int64),
        ctimes_ns=np.array([shard.ctime_ns for shard in shards], np.int64),
        inodes=np.array(
            [shard.inode if shard.inode < 1 << 63 else shard.inode - (1 << 64) for shard in shards], np.int64
        ),
        check_content=check,
    )
