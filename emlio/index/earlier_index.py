"""An index that was made earlier, as far as it still holds."""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.format import Ranges, ShardFiles
from emlio.index.groups import groups_at
from emlio.index.range_index import RangeIndex, ShardRow
from emlio.open_limits import refusal_of
from emlio.store.file_table import FILE_COLUMNS, NameTable, inode_number
from emlio.store.folder import Folder
from emlio.store.store import Store

__all__ = ["EarlierIndex", "KeptShard", "kept_checksums", "ranged_files_unchanged"]


class KeptShard(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A shard that has not changed since.

    Attributes:
        ranges: of its records.
        digest: what identifies it.
    """

    ranges: Ranges
    digest: str


class EarlierIndex:
    """An index of which shards that have not changed are taken over."""

    def __init__(self, index: RangeIndex, chosen: str, settings: bytes) -> None:
        """Use an index.

        Args:
            index: the earlier one.
            chosen: the name of the format that the folder has now.
            settings: of the format, now.
        """
        about = index.about
        self._index = index
        self._usable = about.format == chosen and about.settings == settings
        self._numbers = {row.name: number for number, row in enumerate(about.shards)}

    def shard(self, shard: ShardFiles, store: Store) -> KeptShard | None:
        """Return the shard if its files are those of the earlier index; never one of whole files.

        Those need no reading, and their labels depend on other folders.
        """
        number = self._numbers.get(shard.name)
        if not self._usable or number is None or shard.whole_files:
            return None
        row = self._index.about.shards[number]
        if row.whole_files or row.files != len(shard.files):
            return None
        old = slice(row.first_file, row.first_file + row.files)
        if not store.same(self._index.arrays, old, np.asarray(shard.files, np.int64)):
            return None
        starts, ends = self._index.ranges(number)
        groups = groups_at(self._index.arrays, row.first_file)
        framed = self._index.about.framed
        return KeptShard(ranges=Ranges(starts=starts, ends=ends, groups=groups, framed=framed), digest=row.digest)


def ranged_files_unchanged(index: RangeIndex, folder: Folder) -> bool:
    """Return whether the files that hold several records, or say where records are, have not changed.

    Raises:
        DatasetError: one cannot be looked at.
    """
    names = NameTable(index.arrays["names"], index.arrays["name_bounds"])
    columns = [index.arrays[column].data for column in FILE_COLUMNS]
    for row in index.about.shards:
        for number in () if row.whole_files else range(row.first_file, row.first_file + row.files):
            try:
                now = folder.stat(names[number])
            except FileNotFoundError:
                return False
            except OSError as error:
                path = str(folder.path / names[number])
                raise refusal_of(error, path) or DatasetError(f"{path}: cannot be read: {error.strerror}") from error
            found = now.st_size, now.st_mtime_ns, now.st_ctime_ns, inode_number(now)
            if found != tuple(column[number] for column in columns):
                return False
    return True


def kept_checksums(index: RangeIndex, before: RangeIndex | None, unwritten: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return a table of checksums, with the earlier ones of files that nothing has written to.

    A file that was changed on purpose has a new mtime, or is a new file. One with another ctime only keeps its
    checksums: if its bytes changed they are found.

    Args:
        index: the new one, without checksums.
        before: the earlier index, if there is one.
        unwritten: see `Store`.
    """
    table = np.zeros(index.about.checked_records, np.uint64)
    if before is None or not len(table) or before.about.framed:
        return table
    earlier = {row.name: number for number, row in enumerate(before.about.shards)}
    for number, row in enumerate(index.about.shards):
        if row.name not in earlier:
            continue
        was = before.about.shards[earlier[row.name]]
        # Not the digests: bytes are among what they are of, and changed bytes must be found.
        if (was.files, was.records, was.whole_files) != (row.files, row.records, row.whole_files):
            continue
        if not np.array_equal(_names(index, row), _names(before, was)):
            continue
        now, then = index.ranges(number), before.ranges(earlier[row.name])
        if not row.whole_files and not all(map(np.array_equal, now, then)):
            continue
        same = np.ones(row.files, np.bool_)
        for column in unwritten:
            same &= _of_files(index, row, column) == _of_files(before, was, column)
        if row.whole_files or same.all():
            found = before.checksums[was.first : was.first + was.records]
            table[row.first : row.first + row.records] = np.where(same, found, 0) if row.whole_files else found
    return table


def _of_files(index: RangeIndex, row: ShardRow, column: str) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = index.arrays[column][row.first_file : row.first_file + row.files]
    return found


def _names(index: RangeIndex, row: ShardRow) -> npt.NDArray[np.int64]:
    """Return the names of a shard's files, with their lengths."""
    bounds = index.arrays["name_bounds"][row.first_file : row.first_file + row.files + 1]
    return np.concatenate([np.diff(bounds), index.arrays["names"][bounds[0] : bounds[-1]].astype(np.int64)])
