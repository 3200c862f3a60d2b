"""Columns of records that are read one by one, whatever their format."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.arguments import like
from emlio.errors import ConfigError, DatasetError
from emlio.example.columns import Piece
from emlio.formats.record_form import fault_of, slotted_notes, slotted_views

__all__ = ["IMAGE", "LABEL", "EachRecord", "ReadRecord"]

IMAGE = "image/encoded"
LABEL = "image/class/label"
"""Under these names the presets of pipelines ask for an encoded image and its label."""

ReadRecord = Callable[[memoryview, bytes], Mapping[str, Any]]
"""Returns the columns' values of a record, from its bytes and what is told of it. Raises
`DatasetError` if they are not valid."""

Aliases = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Returns the image and the label under the names `IMAGE` and `LABEL`, given a record's values."""


def _no_aliases(_: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}


def _check_fields(fields: Sequence[str], names: Sequence[str]) -> None:
    """Check that a dataset has these columns.

    Raises:
        ConfigError: it lacks one; the error names those that are like it.
    """
    absent = next((name for name in fields if name not in names), None)
    if absent is not None:
        raise ConfigError(
            f"requested features (fields=, or a pipeline's inputs) must be columns of the dataset, which has "
            f"{', '.join(map(repr, names))}, got {absent!r}{like(absent, names)}"
        )


class EachRecord:
    """Reads records one by one. A column that a record lacks is None there. See `RecordForm`."""

    def __init__(
        self,
        read: ReadRecord,
        fields: Sequence[str] | None,
        aliases: Aliases = _no_aliases,
        names: Iterable[str] | None = None,
    ) -> None:
        """See the class.

        Args:
            read: reads one record.
            fields: the columns wanted, in their order; None for all.
            aliases: finds the columns of an image and its label.
            names: the columns that records may have, with aliases; None if only the records tell.

        Raises:
            ConfigError: `fields` is no such list, or names a column that there is not.
        """
        if fields is not None and (isinstance(fields, str) or not fields or len(set(fields)) != len(fields)):
            raise ConfigError(f"fields must be a list of one or more different names, or None for all, got {fields!r}")
        if fields is not None and names is not None:
            _check_fields(fields, tuple(names))
        self._read = read
        self._fields = None if fields is None else tuple(fields)
        self._aliases = aliases

    def columns(self, pieces: Sequence[Piece], count: int) -> dict[str, Any]:
        """See `RecordForm`."""
        rows: list[Mapping[str, Any]] = []
        for slot, (view, note) in enumerate(
            zip(slotted_views(pieces, count), slotted_notes(pieces, count), strict=True)
        ):
            try:
                rows.append(self._read_row(view, note))
            except DatasetError as error:
                raise DatasetError(f"record {slot} of the batch: {error}") from error
        names: Iterable[str] | None = self._fields
        if names is None:
            there: dict[str, Any] = {}
            for row in rows:
                there.update(row)
            names = there
        return {name: stacked([row.get(name) for row in rows]) for name in names}

    def row(self, view: memoryview, note: bytes) -> Mapping[str, Any]:
        """See `RowForm`."""
        row = self._read_row(view, note)
        return row if self._fields is None else {name: row.get(name) for name in self._fields}

    def _read_row(self, view: memoryview, note: bytes) -> Mapping[str, Any]:
        row = self._read(view, note)
        if self._fields is not None and (IMAGE in self._fields or LABEL in self._fields):
            row = {**self._aliases(row), **row}
        return row

    def faults(self, pieces: Sequence[Piece]) -> Mapping[int, str]:
        """See `RecordForm`."""
        faults: dict[int, str] = {}
        for piece in pieces:
            for row, slot in enumerate(piece.slots.tolist()):
                note = b"" if piece.notes is None else bytes(piece.buffer[piece.notes[row, 0] : piece.notes[row, 1]])
                fault = fault_of(self, piece.buffer[int(piece.starts[row]) : int(piece.ends[row])], note)
                if fault:
                    faults[slot] = fault
        return dict(sorted(faults.items()))


_PLAIN = {
    frozenset({bool}): "bool",
    frozenset({int}): "int64",
    frozenset({float}): "float64",
    frozenset({int, float}): "float64",
}
_LIMITS = {"bool": 1, "int64": 1 << 63, "float64": 1 << 53}
"""Whole numbers beyond these would change as numbers of NumPy's type."""


def stacked(values: list[Any]) -> Any:
    """Return a column: one array of numbers or of arrays of one shape and type, else a list; None stays None."""
    kinds: set[type[Any]] = {type(value) for value in values}
    if len(kinds) == 1 and issubclass(next(iter(kinds)), np.generic):
        return np.array(values)
    plain = _PLAIN.get(frozenset(kinds))
    if plain is not None and all(-_LIMITS[plain] <= value < _LIMITS[plain] for value in values if type(value) is int):
        return np.array(values, plain)
    arrays: list[npt.NDArray[Any]] = [value for value in values if isinstance(value, np.ndarray)]
    first = arrays[0] if len(arrays) == len(values) else None
    if first is not None and all(one.shape == first.shape and one.dtype == first.dtype for one in arrays):
        return np.stack(arrays)
    return values
