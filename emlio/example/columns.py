"""Conversion of a batch's records to one column per feature."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.example.decode import BYTES, NO_KIND, Feature, read_features
from emlio.example.gather import Column, Gathered, empty_numbers
from emlio.example.scan import scan
from emlio.native import ONE_AFTER_THE_OTHER, ExampleSpans, scan_examples, write_numbers

__all__ = ["TOGETHER_FROM", "Column", "ColumnDecoder", "Piece"]

_Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float32]

TOGETHER_FROM = 24
"""The number of records in a piece from which vectorised parsing is faster, as measured with two
features.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """Some records of a batch in one received buffer.

    Attributes:
        buffer: bytes, one-dimensional and contiguous.
        starts: start of each record's data in the buffer (the data, not the frame around it).
        ends: one past its last byte.
        slots: each record's place in the batch.
        notes: (n, 2) begin and end in the buffer of what is told of each record beside its bytes;
            None if nothing is.
    """

    buffer: memoryview
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    notes: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.buffer.format != "B" or self.buffer.ndim != 1 or not self.buffer.c_contiguous:
            raise ConfigError(
                f"a piece's buffer must be contiguous bytes, got {self.buffer.format!r} x {self.buffer.shape}"
            )
        for name, array in (("starts", self.starts), ("ends", self.ends), ("slots", self.slots)):
            if array.dtype != np.int64 or array.ndim != 1 or len(array) != len(self.starts):
                raise ConfigError(f"a piece's {name} must be int64, one per record, got {array.dtype} {array.shape}")
        if len(self.starts) and (
            int(self.starts.min()) < 0
            or int(self.ends.max()) > len(self.buffer)
            or not (self.starts <= self.ends).all()
        ):
            raise ConfigError(f"a piece's records must be inside its buffer of {len(self.buffer)} bytes")
        if self.notes is not None and self.notes.shape != (len(self.starts), 2):
            raise ConfigError(f"a piece's notes must be a begin and an end per record, got {self.notes.shape}")

    def chosen(self, kept: npt.NDArray[Any], slots: npt.NDArray[np.int64]) -> "Piece":
        """Return the records that a mask or positions choose, at other places."""
        notes = None if self.notes is None else self.notes[kept]
        return replace(self, starts=self.starts[kept], ends=self.ends[kept], slots=slots, notes=notes)

    def part(self, begin: int, end: int, slots: npt.NDArray[np.int64]) -> "Piece":
        """Return the records from `begin` up to `end` at other places.

        They were checked with the whole: checking them again would cost more than all else for a piece of one record.
        """
        part, put = object.__new__(Piece), object.__setattr__
        put(part, "buffer", self.buffer)
        put(part, "starts", self.starts[begin:end])
        put(part, "ends", self.ends[begin:end])
        put(part, "slots", slots)
        put(part, "notes", None if self.notes is None else self.notes[begin:end])
        return part


class ColumnDecoder:
    """A converter of pieces to columns.

    It holds no state between batches, so any number of threads may share one.
    """

    __slots__ = ("_fields", "_together_from")

    def __init__(self, fields: Sequence[str] | None = None, *, together_from: int = TOGETHER_FROM) -> None:
        """Create a decoder.

        Args:
            fields: the requested features, in the order of the columns. Others are skipped unread,
                and a record that lacks a requested one is an error. With None, the features of the
                record at place 0, sorted; a record with other features is then an error, since a
                column that depends on the shuffle would be a defect that is hard to find. A feature
                without a kind counts as absent.
            together_from: the number of records in a piece from which they are parsed together.
        """
        if isinstance(fields, str) or (fields is not None and (not fields or len(set(fields)) != len(fields))):
            raise ConfigError(
                f"fields must be a list of one or more different feature names, or None for all, got {fields!r}"
            )
        try:
            self._fields = None if fields is None else tuple(name.encode() for name in fields)
        except (AttributeError, UnicodeEncodeError) as error:
            raise ConfigError(f"fields must be names that can be encoded as UTF-8, got {fields!r}") from error
        self._together_from = together_from

    def decode(self, pieces: Sequence[Piece], count: int) -> dict[str, Column]:
        """Return the columns of a batch of `count` records.

        Raises:
            ConfigError: the pieces' slots are not exactly the places in [0, count).
            DatasetError: a record is malformed, lacks a feature, or has one of another kind; the
                message names its place.
        """
        self._check_slots(pieces, count)
        names = self._names(pieces)
        closed = self._fields is None
        columns = {name: Gathered(name.decode(), count) for name in names}
        wanted = None if closed else frozenset(names)
        for piece in pieces:
            rows: Sequence[int] = range(len(piece.starts))
            if len(rows) >= self._together_from:
                rows = _decode_together(piece, columns, closed=closed)
            for row in rows:
                slot = int(piece.slots[row])
                features = _read(piece, row, wanted)
                if closed:
                    _check_closed(features, columns, slot)
                for name, column in columns.items():
                    feature = features.get(name)
                    if feature is None or feature[0] == NO_KIND:
                        raise _absent(name, slot, _read(piece, row, None))
                    column.add_record(slot, feature)
        return {name.decode(): columns[name].column() for name in names}

    def _check_slots(self, pieces: Sequence[Piece], count: int) -> None:
        slots = np.concatenate([piece.slots for piece in pieces]) if pieces else np.empty(0, np.int64)
        # Not np.array_equal, which treats any exception of a signal's handler as a difference.
        if count < 1 or len(slots) != count or bool((np.sort(slots) != np.arange(count)).any()):
            raise ConfigError(
                f"the pieces' slots must contain each number in [0, {count}) once, got {len(slots)} slots"
            )

    def _names(self, pieces: Sequence[Piece]) -> tuple[bytes, ...]:
        if self._fields is not None:
            return self._fields
        for piece in pieces:
            for row in np.flatnonzero(piece.slots == 0).tolist():
                return tuple(sorted(name for name, feature in _read(piece, row, None).items() if feature[0] != NO_KIND))
        raise AssertionError("unreachable: some piece holds place 0")


def _decode_together(piece: Piece, columns: dict[bytes, Gathered], *, closed: bool) -> list[int]:
    """Add the records of a piece that have the usual form; return the rows of the others."""
    scanned = scan_examples(piece.buffer, piece.starts, piece.ends, tuple(columns), closed=closed)
    if scanned is not None:
        return _add_spans(piece, columns, scanned)
    found, odd = scan(piece.buffer, piece.starts, piece.ends, tuple(columns), closed=closed)
    rows = np.flatnonzero(~odd)
    if not rows.size:
        return list(range(len(odd)))
    slots = piece.slots[rows]
    numbers = {
        name: run
        for name, spans in found.items()
        if spans.kind != BYTES
        for run in [columns[name].unpack(piece.buffer, spans.kind, spans.lows[rows], spans.highs[rows])]
    }
    if any(run is None for run in numbers.values()):
        return list(range(len(odd)))  # a malformed number: the scalar parser reports its position
    for name, spans in found.items():
        run = numbers.get(name)
        if run is None:
            columns[name].add_views(piece.buffer, slots, spans.lows[rows], spans.highs[rows])
        else:
            columns[name].add_numbers(spans.kind, slots, *run)
    return np.flatnonzero(odd).tolist()


def _add_spans(piece: Piece, columns: dict[bytes, Gathered], spans: ExampleSpans) -> list[int]:
    """Add what the C library found; return the rows that it left."""
    count = len(piece.slots)
    odd = np.flatnonzero(spans.odd)
    if len(odd) == count:
        return list(range(count))
    rows: slice | npt.NDArray[np.int64] = np.flatnonzero(spans.odd == 0) if len(odd) else slice(None)
    slots, counts = piece.slots[rows], spans.counts[rows]
    widths = counts[0].tolist()
    same = (counts == counts[0]).all(axis=0).tolist()
    outs: list[tuple[int, _Numbers] | None] = []
    for feature, (kind, column) in enumerate(zip(spans.kinds.tolist(), columns.values(), strict=True)):
        if kind == BYTES:
            column.add_views(piece.buffer, slots, spans.lows[rows, feature], spans.highs[rows, feature])
            outs.append(None)
            continue
        array = column.rows(kind, slots, widths[feature]) if same[feature] else None
        if array is None:
            total = int(counts[:, feature].sum())
            outs.append((ONE_AFTER_THE_OTHER, empty_numbers(kind, total)))
        else:
            outs.append((widths[feature], array))
    if not write_numbers(piece.buffer, spans, piece.slots, outs):
        return list(range(count))  # a malformed number: the scalar parser reports its position
    for feature, (column, out) in enumerate(zip(columns.values(), outs, strict=True)):
        if out is not None and out[0] == ONE_AFTER_THE_OTHER:
            column.add_numbers(int(spans.kinds[feature]), slots, counts[:, feature], out[1])
    return odd.tolist()


def _read(piece: Piece, row: int, wanted: frozenset[bytes] | None) -> dict[bytes, Feature]:
    try:
        return read_features(piece.buffer, int(piece.starts[row]), int(piece.ends[row]), wanted)
    except DatasetError as error:
        raise DatasetError(f"record {int(piece.slots[row])} of the batch: {error}") from error


def _check_closed(features: dict[bytes, Feature], columns: dict[bytes, Gathered], slot: int) -> None:
    for name, feature in features.items():
        if name not in columns and feature[0] != NO_KIND:
            raise DatasetError(
                f"record {slot} of the batch has a feature {name.decode()!r} that record 0 lacks; choose the "
                "features to load with fields="
            )


def _absent(name: bytes, slot: int, features: dict[bytes, Feature]) -> DatasetError:
    there = sorted(other.decode() for other, feature in features.items() if feature[0] != NO_KIND)
    return DatasetError(f"record {slot} of the batch must have feature {name.decode()!r}, it has only {there}")
