"""Columns of TFRecord files: the features of `tf.train.Example`, arrays put together of theirs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from emlio.errors import DatasetError
from emlio.example.arrays import array_columns, array_faults, array_names, parts_of
from emlio.example.columns import ColumnDecoder, Piece
from emlio.example.decode import NO_KIND, parse_example, read_features
from emlio.example.faults import kinds_of, without

__all__ = ["ExampleRecords"]


class ExampleRecords:
    """Features of `tf.train.Example`. See `RowForm`.

    The features NAME/data, NAME/dtype and NAME/shape become one column NAME of arrays, unless they
    are asked for by their own names.
    """

    def __init__(self, fields: Sequence[str] | None) -> None:
        """Decode these features and arrays; None for all."""
        self._fields = fields
        self._decoder = ColumnDecoder(fields)
        self._parts = (
            None if fields is None else [part for name in fields for part in (name, *parts_of(name, {f"{name}/shape"}))]
        )

    def columns(self, pieces: Sequence[Piece], count: int) -> dict[str, Any]:
        """See `RecordForm`."""
        try:
            return self._alike(pieces, count)
        except DatasetError:
            # Records are looked at one by one only now, so that good batches, nearly all, pay nothing for it.
            kinds, faults = kinds_of(pieces, self._parts)
            if faults:
                raise
        columns = _unlike(pieces, count, kinds)
        made = array_columns(columns, self._arrays(columns))
        if self._fields is None:
            return _sorted(columns, made)
        return {name: _either(columns.get(name), made.get(name), count) for name in self._fields}

    def _alike(self, pieces: Sequence[Piece], count: int) -> dict[str, Any]:
        """Return the columns of records that have the same features.

        Raises:
            DatasetError: they have not, or one cannot be decoded.
        """
        names, wanted = self._wanted(pieces)
        decoder = self._decoder if not names else ColumnDecoder(wanted)
        columns: dict[str, Any] = dict(decoder.decode(pieces, count))
        if self._fields is None:
            names = array_names(columns)
            if not names:
                return columns
            return _sorted(columns, array_columns(columns, names))
        arrays = array_columns(columns, names)
        return {name: arrays[name] if name in arrays else columns[name] for name in self._fields}

    def faults(self, pieces: Sequence[Piece]) -> Mapping[int, str]:
        """See `RecordForm`."""
        kinds, faults = kinds_of(pieces, self._parts)
        if kinds:
            slots = list(kinds)
            columns = _unlike(without(pieces, faults), len(slots), dict(enumerate(kinds.values())))
            for place, reason in array_faults(columns, self._arrays(columns)).items():
                faults[slots[place]] = reason
        return dict(sorted(faults.items()))

    def row(self, view: memoryview, note: bytes) -> Mapping[str, Any]:
        """See `RowForm`. The values of each feature are a list."""
        row = parse_example(view)
        return row if self._fields is None else {name: row.get(name) for name in self._fields}

    def _arrays(self, columns: Mapping[str, Any]) -> list[str]:
        """Return which columns become arrays, given the features."""
        if self._fields is None:
            return array_names(columns)
        return [
            name for name in self._fields if array_names([one for one in parts_of(name, columns) if one in columns])
        ]

    def _wanted(self, pieces: Sequence[Piece]) -> tuple[list[str], Sequence[str] | None]:
        """Return which of the fields are arrays in the first record that can be read, and the features of all fields."""
        if self._fields is None:
            return [], None
        there = _features(pieces)
        arrays = set(array_names(there))
        names = [name for name in self._fields if name in arrays]
        if not names:
            return [], self._fields
        wanted = [part for name in self._fields for part in (parts_of(name, there) if name in arrays else [name])]
        return names, list(dict.fromkeys(wanted))


def _features(pieces: Sequence[Piece]) -> set[str]:
    """Return the features of the first record that can be read."""
    for piece in sorted(pieces, key=lambda piece: int(piece.slots.min(initial=1 << 62))):
        for start, end in zip(piece.starts.tolist(), piece.ends.tolist(), strict=True):
            try:
                found = read_features(piece.buffer, start, end, None)
            except DatasetError:
                continue
            return {name.decode() for name, feature in found.items() if feature[0] != NO_KIND}
    return set()


def _unlike(pieces: Sequence[Piece], count: int, kinds: Mapping[int, Mapping[str, int]]) -> dict[str, Any]:
    """Return the columns of records that do not all have the same features: None where one lacks a feature.

    Args:
        pieces: the records, all of which can be read.
        count: their number.
        kinds: the kind of each feature of each record.
    """
    places: dict[str, dict[int, list[int]]] = {}
    for place, features in kinds.items():
        for name, kind in features.items():
            places.setdefault(name, {}).setdefault(kind, []).append(place)
    alike = [name for name, by_kind in places.items() if [len(some) for some in by_kind.values()] == [count]]
    columns: dict[str, Any] = dict(ColumnDecoder(alike).decode(pieces, count)) if alike else {}
    for name in places.keys() - columns.keys():
        items: list[Any] = [None] * count
        for some in places[name].values():
            others = np.delete(np.arange(count), some).tolist()
            column = ColumnDecoder([name]).decode(without(pieces, others), len(some))[name]
            for place, item in zip(some, column, strict=True):
                items[place] = item
        columns[name] = items
    return columns


def _either(column: Any, arrays: Any, count: int) -> Any:
    """Return a column whose values are features in some records and arrays of several features in others."""
    if column is None or arrays is None:
        return next((one for one in (column, arrays) if one is not None), [None] * count)
    return [array if value is None else value for value, array in zip(column, arrays, strict=True)]


def _sorted(columns: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns with arrays in place of their parts."""
    parts = {part for name in arrays for part in parts_of(name, columns)}
    left = {name: column for name, column in columns.items() if name not in parts}
    return dict(sorted((left | dict(arrays)).items()))
