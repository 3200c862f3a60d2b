"""Columns of the records of several datasets, each decoded in its own form.

Covers: dividing a batch's records by dataset, joining columns in the batch's order, columns that cannot be joined. Does not
cover: the forms (emlio.formats.registry), which record is of which dataset (emlio.receiver.records.mixture).
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.example.columns import Piece
from emlio.formats.contents import Contents
from emlio.formats.record_form import RecordForm
from emlio.formats.registry import batch_form, has_own_columns
from emlio.receiver.records.decoded import ABSENT
from emlio.receiver.records.mixture import MixedContents

__all__ = ["MixedBatch", "MixedRecords", "add_usual"]


class MixedRecords:
    """Makes columns of records of several datasets. Keeps no state between batches."""

    def __init__(self, mixture: MixedContents, fields: Sequence[str] | None) -> None:
        """Decode these datasets.

        Args:
            mixture: the datasets.
            fields: the columns wanted; None for all.

        Raises:
            ConfigError: a dataset has no such column.
        """
        self._mixture = mixture
        self._whole = fields is None
        self._forms: list[RecordForm] = []
        for name, contents in zip(mixture.names, mixture.contents, strict=True):
            try:
                self._forms.append(batch_form(contents, fields))
            except ConfigError as error:
                raise ConfigError(f"dataset {name!r} of the mixture: {error}") from error

    def of(self, ids: npt.NDArray[np.int64]) -> "MixedBatch":
        """Return what decodes the batch of these records."""
        return MixedBatch(self._forms, self._mixture, self._mixture.datasets(ids), whole=self._whole)


class MixedBatch:
    """Makes columns of one batch. See `emlio.formats.record_form.RecordForm`.

    Attributes:
        unlike: why the columns are not those of all records; "" if they are.
    """

    def __init__(
        self, forms: Sequence[RecordForm], mixture: MixedContents, datasets: npt.NDArray[np.int64], *, whole: bool
    ) -> None:
        self.unlike = ""
        self._forms = forms
        self._names = mixture.names
        self._contents = mixture.contents if whole else ()
        numbers: list[int] = np.unique(datasets).tolist()
        self._rows = [(number, np.flatnonzero(datasets == number)) for number in numbers]

    def columns(self, pieces: Sequence[Piece], count: int) -> dict[str, Any]:
        """See `RecordForm`. A column that a record lacks has `ABSENT` at its place."""
        made: list[tuple[int, npt.NDArray[np.int64], dict[str, Any]]] = [
            (number, rows, self._forms[number].columns(_only(pieces, rows, count), len(rows)))
            for number, rows in self._rows
        ]
        for number, rows, columns in made if self._contents else ():
            add_usual(columns, self._contents[number], len(rows))
        names = dict.fromkeys(name for _, _, columns in made for name in columns)
        if self._contents:
            # What no schema tells comes and goes with single records: the others lack it, as in a batch of one dataset.
            told = {name for number, _, columns in made for name in columns if self._tells(number, name)}
            for _, rows, columns in made:
                columns.update((name, [None] * len(rows)) for name in names if name not in told and name not in columns)
        for number, _, columns in made:
            lacking = next((name for name in names if name not in columns), None)
            if lacking is not None:
                whole = next(other for other, _, has in made if lacking in has)
                self.unlike = self.unlike or (
                    f"the datasets of a mixture must have the same columns: {self._names[whole]!r} has {lacking!r}, "
                    f"{self._names[number]!r} has only {', '.join(map(repr, columns))}. Name with fields= columns that all have, "
                    "or pass a transform, which gets samples one by one"
                )
        return {
            name: self._joined(name, [(n, rows, columns[name]) for n, rows, columns in made if name in columns], count)
            for name in names
        }

    def faults(self, pieces: Sequence[Piece]) -> Mapping[int, str]:
        """See `RecordForm`."""
        count = sum(len(rows) for _, rows in self._rows)
        found = {
            int(rows[place]): reason
            for number, rows in self._rows
            for place, reason in self._forms[number].faults(_only(pieces, rows, count)).items()
        }
        return dict(sorted(found.items()))

    def _tells(self, number: int, name: str) -> bool:
        contents = self._contents[number]
        return not has_own_columns(contents) or not contents.schema or name in contents.schema

    def _joined(self, name: str, parts: Sequence[tuple[int, npt.NDArray[np.int64], Any]], count: int) -> Any:
        """Return one column of all records, given that of each dataset."""
        (first, rows, column), *others = parts
        if len(rows) == count:
            return column
        for number, _, other in others:
            if _kind(other) != _kind(column) and _kind(other) and _kind(column):
                self.unlike = self.unlike or (
                    f"the datasets of a mixture must have columns of the same types: {name!r} holds {_kind(column)} in "
                    f"{self._names[first]!r} and {_kind(other)} in {self._names[number]!r}. Leave it out with fields=, or pass a "
                    "transform, which gets samples one by one"
                )
        arrays: list[npt.NDArray[Any]] = [part for _, _, part in parts if isinstance(part, np.ndarray)]
        alike = len({(part.dtype, part.shape[1:]) for part in arrays}) == 1
        if len(arrays) == len(parts) and alike and sum(map(len, arrays)) == count:
            joined = np.empty((count, *arrays[0].shape[1:]), arrays[0].dtype)
            for _, places, part in parts:
                joined[places] = part
            return joined
        items: list[Any] = [ABSENT] * count
        for _, places, part in parts:
            for place, item in zip(places.tolist(), part, strict=True):
                items[place] = item
        return items


def add_usual(columns: dict[str, Any], contents: Contents, count: int) -> None:
    """Add the columns of a dataset's schema that no record of a batch has, so that they do not come and go."""
    for name in contents.schema if has_own_columns(contents) else ():
        if name not in columns and name.rpartition("/")[0] not in columns:  # a part of an array
            columns[name] = [None] * count


def _kind(column: Any) -> str:
    """Return the type of a column's values, and whether they are single ones; "" if no record has one."""
    first: Any = next((value for value in column if value is not None), None)
    if first is None:
        return ""
    if isinstance(first, np.ndarray | np.generic):
        kind = str(cast("npt.NDArray[Any]", first).dtype)
        return kind if isinstance(first, np.generic) else f"arrays of {kind}"
    if isinstance(first, bool | int | float):  # beside a record without one
        return str(np.asarray(first).dtype)
    return "bytes" if isinstance(first, memoryview) else type(first).__name__


def _only(pieces: Sequence[Piece], rows: npt.NDArray[np.int64], count: int) -> Sequence[Piece]:
    """Return the pieces with these records alone, numbered among themselves."""
    if len(rows) == count:
        return pieces
    number = np.full(count, -1, np.int64)
    number[rows] = np.arange(len(rows))
    found: list[Piece] = []
    for piece in pieces:
        kept = np.flatnonzero(number[piece.slots] >= 0)
        if kept.size:
            found.append(piece.chosen(kept, number[piece.slots[kept]]))
    return found
