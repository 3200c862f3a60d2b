"""Columns of TFRecord files: the features of `tf.train.Example`.

Covers: columns of the records of a batch, and why a record cannot be decoded. Does not cover: the
files (emlio.shards), other formats.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from emlio.example.columns import ColumnDecoder, Piece
from emlio.example.faults import Absent, find_absent, find_faults

__all__ = ["ExampleRecords"]


class ExampleRecords:
    """Features of `tf.train.Example`. See `RecordForm`."""

    def __init__(self, fields: Sequence[str] | None) -> None:
        """Decode these features; None for all."""
        self._fields = fields
        self._decoder = ColumnDecoder(fields)

    def columns(self, pieces: Sequence[Piece], count: int) -> dict[str, Any]:
        """See `RecordForm`."""
        return dict(self._decoder.decode(pieces, count))

    def faults(self, pieces: Sequence[Piece]) -> Mapping[int, str]:
        """See `RecordForm`."""
        return find_faults(pieces, self._fields)

    def absent(self, pieces: Sequence[Piece]) -> Absent | None:
        """See `RecordForm`."""
        return find_absent(pieces, self._fields) if self._fields else None
