"""The groups of files whose records are no ranges of them, such as the row groups of tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["FileGroups", "Group", "group_columns", "groups_at", "groups_of", "has_groups"]


class _Ranged(Protocol):
    """A shard, as far as its groups need it."""

    @property
    def first_file(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def whole_files(self) -> bool: ...
    @property
    def starts(self) -> npt.NDArray[np.int64]: ...
    @property
    def ends(self) -> npt.NDArray[np.int64]: ...


class Group(msgspec.Struct, frozen=True):
    """One group of a file.

    Attributes:
        file: the file's number.
        place: see `Ranges`.
        begin: the first byte of its records, among those of all records of the file.
        end: the byte after the last one.
    """

    file: int
    place: int
    begin: int
    end: int

    @property
    def size_bytes(self) -> int:
        """The bytes of its records."""
        return self.end - self.begin


@dataclass(frozen=True, kw_only=True, eq=False)
class FileGroups:
    """The groups of all files of a dataset.

    Attributes:
        firsts: (files + 1,) where the groups of each file begin in the other two.
        begins: (groups,) the first byte of each group's records, among those of its file.
        places: (groups,) see `Ranges`.
        ends: (files,) the bytes of all records of each file.
    """

    firsts: npt.NDArray[np.int64]
    begins: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]

    @cached_property
    def _file_bases(self) -> npt.NDArray[np.int64]:
        """(files,) where the records of each file begin among those of all files."""
        return np.cumsum(self.ends) - self.ends

    @cached_property
    def _bases(self) -> npt.NDArray[np.int64]:
        """(groups,) where the records of each group begin among those of all files."""
        return self.begins + np.repeat(self._file_bases, np.diff(self.firsts))

    def numbers(self, files: npt.NDArray[np.int64], bytes_in: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the numbers of the groups that have the records beginning at these bytes of these files."""
        found: npt.NDArray[np.int64] = (
            np.searchsorted(self._bases, self._file_bases[files] + bytes_in, side="right") - 1
        )
        return found

    def group(self, number: int) -> Group:
        """Return a group."""
        file = int(np.searchsorted(self.firsts, number, side="right")) - 1
        upto = int(self.begins[number + 1]) if number + 1 < self.firsts[file + 1] else int(self.ends[file])
        return Group(file=file, place=int(self.places[number]), begin=int(self.begins[number]), end=upto)

    def at(self, file: int, byte: int) -> Group:
        """Return the group of a file that has the record beginning at this byte."""
        return self.group(int(self.numbers(np.array([file]), np.array([byte]))[0]))


def group_columns(groups: Sequence[tuple[npt.NDArray[np.int64], bool]]) -> dict[str, npt.NDArray[Any]]:
    """Return what an index stores of groups; nothing if there are none.

    Args:
        groups: for each shard its groups as in `Ranges`, and whether each is a file of its own.
    """
    if not groups:
        return {}
    together = np.concatenate([found for found, _ in groups])
    counts = [np.ones(len(found), np.int64) if whole else np.array([len(found)]) for found, whole in groups]
    return {
        "group_records": np.ascontiguousarray(together[:, 0]),
        "group_places": np.ascontiguousarray(together[:, 1]),
        "group_bounds": np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(counts))]),
    }


def has_groups(arrays: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Return whether the records of an index are made of groups."""
    return "group_bounds" in arrays


def groups_at(arrays: Mapping[str, npt.NDArray[Any]], file: int) -> npt.NDArray[np.int64] | None:
    """Return the groups of a file in an index, as in `Ranges`; None if it has none."""
    if not has_groups(arrays):
        return None
    part = slice(int(arrays["group_bounds"][file]), int(arrays["group_bounds"][file + 1]))
    return np.stack((arrays["group_records"][part], arrays["group_places"][part]), axis=1)


def groups_of(arrays: Mapping[str, npt.NDArray[Any]], shards: Sequence[_Ranged]) -> FileGroups | None:
    """Return the groups of a dataset's files; None if records are ranges of files."""
    if not has_groups(arrays):
        return None
    bounds, records = arrays["group_bounds"], arrays["group_records"]
    nothing = np.empty(0, np.int64)
    begins, ends = [nothing], [nothing]
    for shard in shards:
        if shard.whole_files:
            begins.append(np.zeros(shard.records, np.int64))
            ends.append(shard.ends)
        else:
            part = slice(int(bounds[shard.first_file]), int(bounds[shard.first_file + 1]))
            begins.append(shard.starts[records[part]])
            ends.append(shard.ends[-1:] if shard.records else np.zeros(1, np.int64))
    return FileGroups(
        firsts=bounds, begins=np.concatenate(begins), places=arrays["group_places"], ends=np.concatenate(ends)
    )
