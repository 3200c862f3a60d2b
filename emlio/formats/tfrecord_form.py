"""Columns of TFRecord files: the features of `tf.train.Example`, arrays put together of theirs.

Covers: columns of the records of a batch, and why a record cannot be decoded. Does not cover: the
files (emlio.shards), other formats.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from emlio.errors import DatasetError
from emlio.example.arrays import array_columns, array_faults, array_names, parts_of
from emlio.example.columns import ColumnDecoder, Piece
from emlio.example.decode import NO_KIND, read_features
from emlio.example.faults import Absent, find_absent, find_faults, without

__all__ = ["ExampleRecords"]


class ExampleRecords:
    """Features of `tf.train.Example`. See `RecordForm`.

    The features NAME/data, NAME/dtype and NAME/shape become one column NAME of arrays, unless they
    are asked for by their own names.
    """

    def __init__(self, fields: Sequence[str] | None) -> None:
        """Decode these features and arrays; None for all."""
        self._fields = fields
        self._decoder = ColumnDecoder(fields)

    def columns(self, pieces: Sequence[Piece], count: int) -> dict[str, Any]:
        """See `RecordForm`."""
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
        names, wanted = self._wanted(pieces)
        faults = find_faults(pieces, wanted)
        slots = sorted({slot for piece in pieces for slot in piece.slots.tolist()} - faults.keys())
        if slots and (names or self._fields is None):
            columns = ColumnDecoder(wanted).decode(without(pieces, tuple(faults)), len(slots))
            for place, reason in array_faults(columns, names or array_names(columns)).items():
                faults[slots[place]] = reason
        return dict(sorted(faults.items()))

    def absent(self, pieces: Sequence[Piece]) -> Absent | None:
        """See `RecordForm`."""
        return find_absent(pieces, self._wanted(pieces)[1] or ()) if self._fields else None

    def _wanted(self, pieces: Sequence[Piece]) -> tuple[list[str], Sequence[str] | None]:
        """Return which of the fields are arrays, and the features of all fields.

        The first record that can be read decides, as it does where all features are wanted.
        """
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


def _sorted(columns: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns with arrays in place of their parts."""
    parts = {part for name in arrays for part in parts_of(name, columns)}
    left = {name: column for name, column in columns.items() if name not in parts}
    return dict(sorted((left | dict(arrays)).items()))
