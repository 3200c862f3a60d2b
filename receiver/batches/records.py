"""The two forms of records: bytes, and `tf.train.Example`.

Covers: columns of the records of a batch, and why a record cannot be decoded. Does not cover: the
treatment of such records (emlio.receiver.batches.assemble).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from emlio.example.columns import ColumnDecoder, Piece
from emlio.example.faults import Absent, find_absent, find_faults
from emlio.receiver.records.decoded import slotted_views

__all__ = ["ExampleRecords", "RawRecords", "RecordForm"]


class RecordForm(Protocol):
    """Makes columns of records. Keeps no state between batches, so any thread may use it."""

    def columns(self, pieces: Sequence[Piece], count: int) -> dict[str, Any]:
        """Return the columns of this many records.

        Raises:
            DatasetError: a record cannot be decoded.
        """
        ...

    def faults(self, pieces: Sequence[Piece]) -> Mapping[int, str]:
        """Return why records cannot be decoded, by their position. Looks at each record."""
        ...

    def absent(self, pieces: Sequence[Piece]) -> Absent | None:
        """Return the requested feature that none of these records has; None if there is none."""
        ...


class RawRecords:
    """Views of the records' bytes. See `RecordForm`."""

    def columns(self, pieces: Sequence[Piece], count: int) -> dict[str, Any]:
        """See `RecordForm`."""
        return {"record": slotted_views(pieces, count)}

    def faults(self, pieces: Sequence[Piece]) -> Mapping[int, str]:
        """See `RecordForm`."""
        return {}

    def absent(self, pieces: Sequence[Piece]) -> Absent | None:
        """See `RecordForm`."""
        return None


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
