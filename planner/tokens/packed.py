"""Rows of a fixed number of tokens, filled with whole sequences.

A record longer than a row fills whole rows of its own; its rest is placed like any other sequence.
Sequences are placed from the longest down, each in the first row that has room.

Covers: first fit decreasing for many shares at once; cutting one share into a given number of
batches of rows. Does not cover: which records are in a share (epoch.py), filling arrays
(emlio.receiver.tokens.batches).
"""

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.tokens.cutting import Cutting

__all__ = ["Packed", "first_fit"]

_ROOM_ITEMS = 2**18
"""The size of the table of free room, over the shares processed side by side: it stays in the
second-level cache."""

_SIDE_BY_SIDE = 8
"""The number of shares from which on processing them side by side is faster, as measured."""


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """Batches of `rows` rows of `row_tokens` tokens; the rest of each row is padding.

    Attributes:
        row_tokens: tokens in a row.
        rows: rows in a batch.
    """

    row_tokens: int
    rows: int

    def __post_init__(self) -> None:
        if not 1 <= self.row_tokens < 2**31:
            raise ConfigError(f"row_tokens must be in [1, 2**31), got {self.row_tokens}")
        if not 1 <= self.rows < 2**31:
            raise ConfigError(f"rows must be in [1, 2**31), got {self.rows}")

    def __str__(self) -> str:
        """Return the text that a state holds."""
        return f"packed:{self.rows}x{self.row_tokens}"

    @property
    def accepted_tokens(self) -> int | None:
        """See `Cut`."""
        return None

    @property
    def piece_tokens(self) -> int:
        """See `Cut`."""
        return self.row_tokens

    @property
    def splits(self) -> bool:
        """See `Cut`."""
        return True

    @property
    def shape(self) -> tuple[int, int]:
        """See `Cut`."""
        return self.rows, self.row_tokens

    def most(self, lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """See `Cut`: a batch holds at least one piece."""
        pieces: npt.NDArray[np.int64] = (-(-lengths // np.int32(self.row_tokens))).sum(axis=1, dtype=np.int64)
        return pieces

    def needed(self, lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """See `Cut`."""
        full = lengths // np.int32(self.row_tokens)
        rests = np.sort(lengths - full * np.int32(self.row_tokens), axis=1)[:, ::-1]
        filled = first_fit(rests, self.row_tokens).max(axis=1, initial=-1).astype(np.int64) + 1
        batches: npt.NDArray[np.int64] = -(-(full.sum(axis=1, dtype=np.int64) + filled) // self.rows)
        return batches

    def cut(self, lengths: npt.NDArray[np.int32], batches: int) -> Cutting:
        """See `Cut`. Rows go to the batches in turn, so that each has long and short sequences."""
        whole = lengths.astype(np.int64)
        full = whole // self.row_tokens
        rests = whole - full * self.row_tokens
        order = np.argsort(-rests, kind="stable").astype(np.int64)[: np.count_nonzero(rests)]
        placed = first_fit(rests[order].astype(np.int32)[np.newaxis], self.row_tokens)[0].astype(np.int64)
        fulls = int(full.sum())
        records = np.concatenate((np.repeat(np.arange(len(whole), dtype=np.int64), full), order))
        sizes = np.concatenate((np.full(fulls, self.row_tokens, dtype=np.int64), rests[order]))
        rows = _spread(np.concatenate((np.arange(fulls, dtype=np.int64), placed + fulls)), batches)
        by_row = np.argsort(rows, kind="stable")
        records, sizes, rows = records[by_row], sizes[by_row], rows[by_row]
        before = np.cumsum(sizes) - sizes
        columns = before - before[np.searchsorted(rows, rows)]
        return Cutting(records=records, lengths=sizes, batches=rows % batches, rows=rows // batches, columns=columns)


def first_fit(falling: npt.NDArray[np.int32], room: int) -> npt.NDArray[np.int32]:
    """Return the row of each sequence: the first with room for it.

    Args:
        falling: (shares, sequences) lengths in [0, room], falling within each share; 0 if there is
            no sequence.
        room: tokens in a row.

    Returns:
        (shares, sequences) rows from 0; -1 if there is no sequence.
    """
    shares, sequences = falling.shape
    # Two neighbouring rows hold more than one row's room, or the second would not have been begun.
    widths = np.minimum(2 * falling.sum(axis=1, dtype=np.int64) // room + 2, sequences)
    if shares < _SIDE_BY_SIDE:
        rows = [_place_alone(share, room, int(width)) for share, width in zip(falling, widths, strict=True)]
        return np.array(rows, dtype=np.int32).reshape(falling.shape)
    result = np.empty(falling.shape, dtype=np.int32)
    together = max(_ROOM_ITEMS // int(widths.max(initial=1)), 1)
    for first in range(0, shares, together):
        part = slice(first, first + together)
        result[part] = _place_together(np.ascontiguousarray(falling[part].T), room, int(widths[part].max())).T
    return result


def _place_alone(falling: npt.NDArray[np.int32], room: int, width: int) -> npt.NDArray[np.int32]:
    rows = np.full(falling.shape, -1, dtype=np.int32)
    left = np.full(width, room, dtype=np.int32)
    looked_at = 1  # rows begun, and one more, which has room for any sequence
    for number, length in enumerate(falling[falling > 0]):
        found = (left[:looked_at] >= length).argmax()
        left[found] -= length
        rows[number] = found
        looked_at += found + 1 == looked_at
    return rows


def _place_together(columns: npt.NDArray[np.int32], room: int, width: int) -> npt.NDArray[np.int32]:
    """Process shares side by side, one sequence of each at a time."""
    sequences, shares = columns.shape
    rows = np.full(columns.shape, -1, dtype=np.int32)
    kind = np.int16 if room < 2**15 else np.int32  # half the bytes to compare
    left = np.full((shares, width), room, dtype=kind)
    flat = left.ravel()
    begins = np.arange(shares, dtype=np.int64) * width
    looked_at = 1  # the most rows begun in a share, and one more
    for number in range(sequences):
        lengths = columns[number].astype(kind)
        there = lengths > 0
        if not there.any():
            break
        found = (left[:, :looked_at] >= lengths[:, np.newaxis]).argmax(axis=1)
        flat[begins + found] -= lengths
        rows[number] = np.where(there, found, -1)
        looked_at = min(max(looked_at, int(found.max()) + 2), width)
    return rows


def _spread(rows: npt.NDArray[np.int64], wanted: int) -> npt.NDArray[np.int64]:
    """Return at least `wanted` rows, by halving those with the most sequences.

    There must be at least `wanted` sequences.
    """
    begun = int(rows.max()) + 1
    if begun >= wanted:
        return rows
    rows = rows.copy()
    sizes = np.bincount(rows, minlength=wanted)
    for new in range(begun, wanted):
        fullest = int(sizes.argmax())
        moved = np.flatnonzero(rows == fullest)[sizes[fullest] - sizes[fullest] // 2 :]
        rows[moved] = new
        sizes[fullest] -= len(moved)
        sizes[new] = len(moved)
    return rows
