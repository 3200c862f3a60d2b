"""What one thread was doing, noted as it goes on, within a bound.

Covers: joining what lies close together, work that is not done yet, cutting at an epoch's edges, several threads as one. Does not
cover: who notes (emlio.receiver.energy_notes).
"""

from collections.abc import Iterable
from threading import Lock

__all__ = ["SpanLog", "joined"]

_JOIN_NS = 100_000
"""What lies closer together than this is one: nothing near as fine can be told from counters."""

_MOST = 1 << 14

_Piece = tuple[int, int]


class SpanLog:
    """Pieces of time from a start to an end, which one thread adds in their order and any may take.

    Of too many, each two neighbours become one that begins with the first and is as long as both: their time is kept to the
    nanosecond, and where it was to a gap between steps.
    """

    def __init__(self, *, joins: bool = True, most: int = _MOST) -> None:
        """Nothing noted.

        Args:
            joins: whether pieces with less than a tenth of a millisecond between are one. Not for steps, which are counted.
            most: pieces kept at a time; even.
        """
        self._joins = joins
        self._most = most
        self._lock = Lock()
        self._pieces: list[_Piece] = []
        self._open_ns: int | None = None

    def begin(self, at_ns: int) -> None:
        """Something begins. What was begun before and never ended is forgotten."""
        self._open_ns = at_ns

    def end(self, at_ns: int) -> None:
        """It is done. Without a beginning nothing happens."""
        with self._lock:
            begun_ns, self._open_ns = self._open_ns, None
            if begun_ns is not None:
                self._add(begun_ns, at_ns)

    def add(self, start_ns: int, end_ns: int) -> None:
        """Something that is over."""
        with self._lock:
            self._add(start_ns, end_ns)

    def _add(self, start_ns: int, end_ns: int) -> None:
        pieces = self._pieces
        if self._joins and pieces and start_ns - pieces[-1][1] < _JOIN_NS:
            pieces[-1] = pieces[-1][0], max(end_ns, pieces[-1][1])
            return
        if len(pieces) >= self._most:
            pairs = zip(pieces[::2], pieces[1::2], strict=True)
            self._pieces = pieces = [(one[0], one[1] + other[1] - other[0]) for one, other in pairs]
        pieces.append((start_ns, end_ns))

    def cut(self, from_ns: int, to_ns: int) -> list[_Piece]:
        """What lies between two moments, and of what reaches over one the part that does. What lies later is kept, no more."""
        with self._lock:
            pieces, open_ns = self._pieces, self._open_ns
            if open_ns is not None and open_ns < to_ns:
                pieces.append((open_ns, to_ns))
                self._open_ns = to_ns
            self._pieces = [(max(start, to_ns), end) for start, end in pieces if end > to_ns]
        return [
            (max(start, from_ns), min(end, to_ns))
            for start, end in pieces
            if end > from_ns and start < to_ns and end > start
        ]


def joined(pieces: Iterable[_Piece]) -> list[_Piece]:
    """The time in which at least one goes on, in its order."""
    found: list[_Piece] = []
    for start_ns, end_ns in sorted(pieces):
        if found and start_ns <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end_ns)
        else:
            found.append((start_ns, end_ns))
    return found
