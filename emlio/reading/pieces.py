"""The requests that fetch the records of a message.

Records that lie close together are fetched with the bytes between them. Long stretches are divided,
so that several connections share them.

Covers: which ranges are fetched, and where their bytes belong. Does not cover: fetching
(emlio.reading.bucket_engine).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from emlio.reading.ranges import run_starts

__all__ = ["Piece", "pieces_of"]

_GAP_BYTES = 256 << 10
"""The most bytes between two records that are fetched together. They take 3 ms at the 80 MB/s of a
connection, a tenth of the time of another request, and at most a few times the memory."""

_MOST_WASTED = 2
"""A piece holds at most this many times the bytes that are needed of it, with gaps."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """One range to fetch, and where its parts belong.

    Attributes:
        file: the file's number.
        start: its first byte there.
        end: the byte after its last one.
        copies: (n, 3) for each part its place in the range, its place in the message, its length.
    """

    file: int
    start: int
    end: int
    copies: npt.NDArray[np.int64]

    @property
    def size_bytes(self) -> int:
        """The bytes fetched."""
        return self.end - self.start


def pieces_of(
    file: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    *,
    most_bytes: int,
) -> list[Piece]:
    """Return the pieces for ranges that follow each other in a message.

    Args:
        file: (n,) the file of each range.
        starts: (n,) the byte at which each begins.
        sizes: (n,) their lengths.
        most_bytes: the size of the largest piece.
    """
    filled = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=filled[1:])
    first = run_starts(file, starts, sizes)
    at, lengths = filled[first], np.diff(np.append(filled[first], filled[-1]))
    some = lengths > 0
    runs = (file[first][some], starts[first][some], at[some], lengths[some])
    order = np.lexsort((runs[1], runs[0]))
    pieces: list[Piece] = []
    held: list[tuple[int, int, int]] = []  # (byte in the file, byte in the message, length)
    of, begin, end, needed = -1, 0, 0, 0
    for number in order.tolist():
        this, start, into, length = (int(column[number]) for column in runs)
        upto = max(end, start + length)
        joins = (
            this == of
            and start - end <= _GAP_BYTES
            and upto - begin <= most_bytes
            and upto - begin <= _MOST_WASTED * (needed + length) + _GAP_BYTES
        )
        if not joins and held:
            pieces += _cut(of, begin, end, held, most_bytes)
            held = []
        if not joins:
            of, begin, end, needed = this, start, start, 0
            upto = start + length
        held.append((start, into, length))
        end, needed = upto, needed + length
    if held:
        pieces += _cut(of, begin, end, held, most_bytes)
    return pieces


def _cut(file: int, begin: int, end: int, held: list[tuple[int, int, int]], most_bytes: int) -> list[Piece]:
    """Return one piece, or several if a single run is too long for one."""
    if end - begin <= most_bytes:
        copies = np.array([(start - begin, into, length) for start, into, length in held], np.int64)
        return [Piece(file=file, start=begin, end=end, copies=copies)]
    ((start, into, length),) = held  # only a run that is alone is longer
    return [
        Piece(
            file=file,
            start=at,
            end=min(at + most_bytes, start + length),
            copies=np.array([(0, into + at - start, min(most_bytes, start + length - at))], np.int64),
        )
        for at in range(start, start + length, most_bytes)
    ]
