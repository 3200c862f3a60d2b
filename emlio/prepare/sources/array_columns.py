"""Large .npy files side by side: x.npy and y.npy with equally many rows become rows with columns x and y.

Files whose names end with a number, such as x-0.npy, y-0.npy, x-1.npy and y-1.npy, are groups that
follow each other.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from emlio.errors import DatasetError
from emlio.formats.array_rows import check_numbers, header_of
from emlio.formats.npy_header import NpyHeader
from emlio.prepare.sample import Sample
from emlio.prepare.sources.record_source import Fingerprint, Ignored, Listing, read_listed, source_folder
from emlio.store.folder_store import FolderStore, walk

__all__ = ["ArrayColumns", "is_pair"]

_NUMBERED: Final = re.compile(r"(?P<column>.+?)[-_.](?P<group>\d+)")
_PAIR: Final = ("x", "y")


def is_pair(names: Iterable[str]) -> bool:
    """Return whether the names of .npy files are those of a pair of inputs and outputs, in one group or several."""
    columns = {_parted(name)[0].lower() for name in names if name.endswith(".npy")}
    return sorted(columns) == list(_PAIR)


def _parted(name: str) -> tuple[str, str]:
    """Return the column and the group of a file; no group if its name has no number."""
    stem = name.rpartition("/")[2].removesuffix(".npy")
    match = _NUMBERED.fullmatch(stem)
    return (match["column"], match["group"]) if match is not None else (stem, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The rows of one file."""

    name: str
    number: int
    header: NpyHeader

    @property
    def rows(self) -> int:
        """The number of them."""
        return self.header.shape[0]

    @property
    def row_bytes(self) -> int:
        """The bytes of one of them."""
        return self.header.size_bytes // self.rows if self.rows else 0

    def row(self, files: FolderStore, place: int) -> Any:
        """Read one of them."""
        data = read_listed(files, self.number, self.header.begin + place * self.row_bytes, self.row_bytes)
        row = np.frombuffer(data, self.header.dtype).reshape(self.header.shape[1:])
        row = row.astype(self.header.dtype.newbyteorder("="), copy=False)
        # Whole numbers are features by themselves; others of one value keep all bits as arrays do.
        return row[()] if row.ndim == 0 and row.dtype.kind in "biu" else row


class ArrayColumns:
    """Rows in the order of the groups. The constructor reads the headers."""

    def __init__(self, path: Path) -> None:
        """List the files of a folder; its sub-folders are ignored.

        Raises:
            DatasetError: they do not have equally many rows, or one is no array of rows.
        """
        self._tree = walk(source_folder(path))
        try:
            self._list(path, self._tree)
        except BaseException:
            self.close()
            raise

    def _list(self, path: Path, tree: FolderStore) -> None:
        groups: defaultdict[str, dict[str, _File]] = defaultdict(dict)
        for number, name in enumerate(tree.names):
            if "/" in name or not name.endswith(".npy"):
                continue
            column, group = _parted(name)
            if column in groups[group]:
                raise DatasetError(
                    f"{path}: each column must be there once in a group, {name} is column {column!r} as "
                    f"{groups[group][column].name} is"
                )
            header = header_of(tree, number)
            check_numbers(header, int(tree.sizes[number]), name)
            _check_rows(header, name)
            groups[group][column] = _File(name=name, number=number, header=header)
        used = {file.name for group in groups.values() for file in group.values()}
        ignored = Ignored.of(name for name in tree.names if name not in used)
        if not groups:
            raise DatasetError(f"source {path}: must hold .npy files with a row for each record, holds none")
        self._groups = [groups[group] for group in sorted(groups, key=lambda group: (int(group or 0), group))]
        for files in self._groups:
            _check_group(path, files, self._groups[0])
        counts = [next(iter(group.values())).rows for group in self._groups]
        self._firsts = np.cumsum([0, *counts])
        sizes = [sum(file.row_bytes for file in group.values()) for group in self._groups]
        fingerprint = Fingerprint("npy-columns")
        for files in self._groups:
            for column, file in files.items():
                fingerprint.add_file(tree, file.number, column, file.name)
        self.listing = Listing(
            sizes_bytes=np.repeat(np.array(sizes, np.int64), counts),
            fingerprint=fingerprint.hexdigest(),
            label_names={},
            ignored=ignored,
        )

    def key(self, place: int) -> str:
        """Return a file of the group, and the number of the row."""
        group, row = self._where(place)
        return f"{self._tree.path(next(iter(group.values())).number)}: row {row}"

    def record(self, place: int) -> Sample:
        """Read one row of each column."""
        group, row = self._where(place)
        return Sample(columns={column: file.row(self._tree, row) for column, file in group.items()}, whole_arrays=True)

    def close(self) -> None:
        """Close the folder. Closing again does nothing."""
        self._tree.close()

    def _where(self, place: int) -> tuple[Mapping[str, _File], int]:
        number = int(np.searchsorted(self._firsts, place, side="right")) - 1
        return self._groups[number], place - int(self._firsts[number])


def _check_rows(header: NpyHeader, name: str) -> None:
    if not header.shape or (header.fortran and len(header.shape) > 1) or header.dtype.names is not None:
        raise DatasetError(
            f"{name}: must have rows of numbers in C order, has shape {header.shape}, {header.dtype}, Fortran: "
            f"{header.fortran}"
        )


def _check_group(path: Path, group: Mapping[str, _File], first: Mapping[str, _File]) -> None:
    if group.keys() != first.keys():
        names = [sorted(file.name for file in each.values()) for each in (first, group)]
        raise DatasetError(
            f"{path}: each numbered group of files must have the same columns, one has {', '.join(names[0])}, another "
            f"{', '.join(names[1])}"
        )
    rows = {file.name: file.rows for file in group.values()}
    if len(set(rows.values())) > 1:
        told = ", ".join(f"{name} {count:,}" for name, count in rows.items())
        raise DatasetError(f"{path}: the files of a group must have equally many rows, they have: {told}")
    for column, file in group.items():
        mine, firsts = ((each.header.dtype.newbyteorder("="), each.header.shape[1:]) for each in (file, first[column]))
        if mine != firsts:
            raise DatasetError(
                f"{path / file.name}: rows of a column must have one type and shape, {first[column].name} has {firsts[0]} "
                f"{firsts[1]}, this one {mine[0]} {mine[1]}"
            )
