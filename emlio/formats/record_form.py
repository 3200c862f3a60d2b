"""The contract of what makes columns of a batch's records, and bytes as they are."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, cast, overload

import numpy as np
import numpy.typing as npt

from emlio import native
from emlio.errors import DatasetError
from emlio.example.columns import Piece

__all__ = [
    "LENGTH",
    "RECORD",
    "RawRecords",
    "RecordForm",
    "RowForm",
    "RowRecords",
    "Slices",
    "equal_rows",
    "fault_of",
    "slotted_notes",
    "slotted_views",
]

RECORD: Final = "record"
"""The column of the records' bytes."""

LENGTH: Final = "length"
"""The column that says how many bytes of a row are the record's."""


class RecordForm(Protocol):
    """Makes columns of records. Keeps no state between batches, so any thread may use it."""

    def columns(self, pieces: Sequence[Piece], count: int) -> dict[str, Any]:
        """Return the columns of this many records. A record that lacks a column has None there.

        Raises:
            DatasetError: a record cannot be decoded.
        """
        ...

    def faults(self, pieces: Sequence[Piece]) -> Mapping[int, str]:
        """Return why records cannot be decoded, by their position. Each is judged by itself."""
        ...


class RowForm(RecordForm, Protocol):
    """Makes columns of records, of single ones, too."""

    def row(self, view: memoryview, note: bytes) -> Mapping[str, Any]:
        """Return the columns of one record, given its bytes and what a rank is told of it.

        Raises:
            DatasetError: it cannot be decoded.
        """
        ...


def fault_of(form: RowForm, view: memoryview, note: bytes) -> str:
    """Return why a record cannot be decoded; "" if it can be."""
    try:
        form.row(view, note)
    except DatasetError as error:
        return str(error)
    return ""


class _AsTheyAre:
    """The part of a form whose records are not decoded, so that none can fail to be."""

    def faults(self, pieces: Sequence[Piece]) -> Mapping[int, str]:
        """See `RecordForm`."""
        return {}


class RawRecords(_AsTheyAre):
    """Views of the records' bytes, made when they are asked for. See `RecordForm`."""

    def columns(self, pieces: Sequence[Piece], count: int) -> dict[str, Any]:
        """See `RecordForm`."""
        return {RECORD: Slices(pieces, count)}


class RowRecords(_AsTheyAre):
    """The records' bytes as the rows of one array, and the lengths. See `RecordForm`.

    An array is as wide as its longest record; behind a shorter one are zeros.
    """

    def columns(self, pieces: Sequence[Piece], count: int) -> dict[str, Any]:
        """See `RecordForm`."""
        width = max((int((piece.ends - piece.starts).max()) for piece in pieces if len(piece.starts)), default=0)
        # Zeros where a record may be in no piece.
        make = np.empty if sum(len(piece.starts) for piece in pieces) == count else np.zeros
        rows, lengths = make((count, width), np.uint8), make(count, np.int64)
        for piece in pieces:
            _place(piece, rows, lengths)
        return {RECORD: rows, LENGTH: lengths}


class Slices(Sequence[memoryview]):
    """The bytes of a batch's records: a view of each is made when it is asked for.

    A batch of small records has so many of them that making all views takes longer than receiving
    their bytes.
    """

    __slots__ = ("_count", "_pieces", "_whose")

    def __init__(self, pieces: Sequence[Piece], count: int) -> None:
        """Hold `count` records, each of which is in one of the pieces."""
        self._pieces = tuple(pieces)
        self._count = count
        self._whose: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]] | None = None

    def __len__(self) -> int:
        """Return the number of records."""
        return self._count

    @overload
    def __getitem__(self, index: int) -> memoryview: ...

    @overload
    def __getitem__(self, index: slice) -> list[memoryview]: ...

    def __getitem__(self, index: int | slice) -> memoryview | list[memoryview]:
        """Return the bytes of one record, or a list of those of several."""
        if isinstance(index, slice):
            return list(self)[index]
        place = range(self._count)[index]
        piece_of, row_of = self._places()
        piece, row = self._pieces[int(piece_of[place])], int(row_of[place])
        view: memoryview = piece.buffer[int(piece.starts[row]) : int(piece.ends[row])]
        return view

    def __iter__(self) -> Iterator[memoryview]:
        """Yield the bytes of each record."""
        return iter(slotted_views(self._pieces, self._count))

    def __eq__(self, other: object) -> bool:
        """Return whether a sequence holds the same bytes."""
        return isinstance(other, Sequence) and list(self) == list(cast("Sequence[object]", other))

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        """Return the number of records."""
        return f"<{self._count:,} records' bytes>"

    def _places(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return the piece of each record, and its number in it."""
        if self._whose is None:
            piece_of, row_of = np.zeros(self._count, np.int32), np.zeros(self._count, np.int32)
            for number, piece in enumerate(self._pieces):
                piece_of[piece.slots] = number
                row_of[piece.slots] = np.arange(len(piece.slots), dtype=np.int32)
            self._whose = piece_of, row_of
        return self._whose


def equal_rows(pieces: Sequence[Piece], count: int, width: int) -> npt.NDArray[np.uint8] | None:
    """Return the records as rows, if there are `count` of `width` bytes each; None if there are not."""
    if not width or sum(len(piece.slots) for piece in pieces) != count:
        return None
    if any((piece.ends - piece.starts != width).any() for piece in pieces):
        return None
    rows = np.empty((count, width), np.uint8)
    for piece in pieces:
        _place(piece, rows)
    return rows


def _place(piece: Piece, rows: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64] | None = None) -> None:
    """Copy the records of a piece to their rows, with zeros behind them, and note their lengths."""
    if not len(piece.starts) or native.place_rows(piece.buffer, piece.starts, piece.ends, piece.slots, rows, lengths):
        return
    sizes = piece.ends - piece.starts
    if lengths is not None:
        lengths[piece.slots] = sizes
    steps = np.diff(piece.starts)
    width = rows.shape[1]
    if width and (sizes == width).all() and (steps == steps[:1]).all():
        # Records of one size that came in one message: they are copied together, whatever their number.
        step = int(steps[0]) if len(steps) else width
        rows[piece.slots] = np.ndarray((len(sizes), width), np.uint8, piece.buffer, int(piece.starts[0]), (step, 1))
        return
    data = np.frombuffer(piece.buffer, np.uint8)
    for slot, start, end in zip(piece.slots.tolist(), piece.starts.tolist(), piece.ends.tolist(), strict=True):
        rows[slot, : end - start] = data[start:end]
        rows[slot, end - start :] = 0


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
