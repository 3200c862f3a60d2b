"""The contract of what makes columns of a batch's records, and bytes as they are.

Covers: the contract, records of any format as their bytes, views of records and of what is told of
them. Does not cover: the forms of the formats (their own files), the treatment of records that
cannot be decoded (emlio.receiver.batches.assemble).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from emlio.example.columns import Piece
from emlio.example.faults import Absent

__all__ = ["RawRecords", "RecordForm", "slotted_notes", "slotted_views"]


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


def slotted_views(pieces: Sequence[Piece], count: int) -> list[Any]:
    """Return each record's bytes, in the batch's order; None for a record in no piece."""
    if len(pieces) == 1 and len(pieces[0].starts) == count and (np.diff(pieces[0].slots) == 1).all():
        return _slices(pieces[0])
    views: list[Any] = [None] * count
    for piece in pieces:
        for slot, view in zip(piece.slots.tolist(), _slices(piece), strict=True):
            views[slot] = view
    return views


def slotted_notes(pieces: Sequence[Piece], count: int) -> list[bytes]:
    """Return what is told of each record, in the batch's order; nothing for a record in no piece."""
    notes = [b""] * count
    for piece in pieces:
        bounds: list[list[int]] = [] if piece.notes is None else piece.notes.tolist()
        for slot, (begin, end) in zip(piece.slots.tolist(), bounds, strict=False):
            notes[slot] = bytes(piece.buffer[begin:end])
    return notes


def _slices(piece: Piece) -> list[memoryview]:
    buffer = piece.buffer
    return [buffer[start:end] for start, end in zip(piece.starts.tolist(), piece.ends.tolist(), strict=True)]
