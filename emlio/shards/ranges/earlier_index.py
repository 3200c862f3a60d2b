"""An index that was made earlier, as far as it still holds.

Covers: whether its files have changed, ranges and checksums that are taken over. Does not cover: whether
files came or went (emlio.shards.files.tree), making an index (emlio.shards.opening.ranged_dataset).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.format import Ranges, ShardFiles
from emlio.open_limits import refusal_of
from emlio.shards.files.file_table import FILE_COLUMNS, inode_number
from emlio.shards.files.folder import Folder
from emlio.shards.files.indexed_files import IndexedFiles
from emlio.shards.ranges.groups import groups_at
from emlio.shards.ranges.index import RangeIndex

__all__ = ["EarlierIndex", "KeptShard", "kept_checksums", "ranged_files_unchanged"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptShard:
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
        self._rows = {row[0]: row for row in about.shards}

    def shard(self, shard: ShardFiles, tree: IndexedFiles) -> KeptShard | None:
        """Return the shard if its files are those of the earlier index; never one of whole files.

        Those need no reading, and their labels depend on other folders.
        """
        row = self._rows.get(shard.name)
        if not self._usable or row is None or shard.whole_files or row[6] or row[2] != len(shard.files):
            return None
        _, first, count, base, records, digest, _ = row
        if not tree.same(self._index.arrays, slice(first, first + count), np.asarray(shard.files, np.int64)):
            return None
        part = slice(base, base + records)
        starts, ends = self._index.arrays["starts"][part], self._index.arrays["ends"][part]
        groups = groups_at(self._index.arrays, first)
        return KeptShard(ranges=Ranges(starts=starts, ends=ends, groups=groups), digest=digest)


def ranged_files_unchanged(index: RangeIndex, folder: Folder) -> bool:
    """Return whether the files that hold several records, or say where records are, have not changed.

    Raises:
        DatasetError: one cannot be looked at.
    """
    table = index.files(folder.path)
    for _, first, count, _, _, _, whole in index.about.shards:
        for number in () if whole else range(first, first + count):
            try:
                now = folder.stat(table.names[number])
            except FileNotFoundError:
                return False
            except OSError as error:
                path = str(table.path(number))
                raise refusal_of(error, path) or DatasetError(f"{path}: cannot be read: {error.strerror}") from error
            if (now.st_size, now.st_mtime_ns, now.st_ctime_ns, inode_number(now)) != tuple(
                int(getattr(table, column)[number]) for column in FILE_COLUMNS
            ):
                return False
    return True


def kept_checksums(
    rows: Sequence[tuple[str, int, int, int, int, str, bool]],
    arrays: Mapping[str, npt.NDArray[Any]],
    before: RangeIndex | None,
    unwritten: Sequence[str],
) -> npt.NDArray[np.uint64]:
    """Return a table of checksums, with the earlier ones of files that nothing has written to.

    A file that was changed on purpose has a new mtime, or is a new file. One with another ctime only keeps its
    checksums: if its bytes changed they are found.

    Args:
        rows: the shards, as in `About`.
        arrays: of the new index.
        before: the earlier index, if there is one.
        unwritten: the columns that are the same as long as nothing writes to a file on purpose.
    """
    table = np.zeros(sum(row[4] for row in rows), np.uint64)
    old = {row[0]: row for row in before.about.shards} if before is not None else {}
    for name, first, count, base, records, _, whole in rows:
        row = old.get(name)
        if before is None or row is None or (row[2], row[4], row[6]) != (count, records, whole):
            continue
        # Not the digests: bytes are among what they are of, and changed bytes must be found.
        now, then = (first, count, base, records), (row[1], row[2], row[3], row[4])
        if not np.array_equal(_names(arrays, now), _names(before.arrays, then)):
            continue
        if not whole and not np.array_equal(_ranges(arrays, now), _ranges(before.arrays, then)):
            continue
        same = np.ones(count, np.bool_)
        for column in unwritten:
            same &= arrays[column][first : first + count] == before.arrays[column][row[1] : row[1] + count]
        if whole or same.all():
            found = before.checksums[row[3] : row[3] + records]
            table[base : base + records] = np.where(same, found, 0) if whole else found
    return table


def _names(arrays: Mapping[str, npt.NDArray[Any]], of: tuple[int, int, int, int]) -> npt.NDArray[np.int64]:
    """Return the names of a shard's files, with their lengths."""
    bounds = arrays["name_bounds"][of[0] : of[0] + of[1] + 1]
    return np.concatenate([np.diff(bounds), arrays["names"][bounds[0] : bounds[-1]].astype(np.int64)])


def _ranges(arrays: Mapping[str, npt.NDArray[Any]], of: tuple[int, int, int, int]) -> npt.NDArray[np.int64]:
    """Return where a shard's records begin and end."""
    part = slice(of[2], of[2] + of[3])
    return np.concatenate([arrays["starts"][part], arrays["ends"][part]])
