"""The activity of one thread as a bounded list of time spans."""

from collections.abc import Iterable
from threading import Lock

__all__ = ["SpanLog", "joined"]

_JOIN_NS = 100_000
"""Spans closer together than this are joined: energy counters cannot resolve such gaps."""

_MOST = 1 << 14

_Piece = tuple[int, int]


class SpanLog:
    """Time spans with a start and an end. One thread adds them in order; any thread may take them.

    When the list is full, each two neighbours become one that begins with the first and is as long
    as both together. Their total time stays exact; their position shifts by at most the gap between
    them.
    """

    def __init__(self, *, joins: bool = True, most: int = _MOST) -> None:
        """Create an empty log.

        Args:
            joins: whether spans less than 0.1 ms apart are joined; False for steps, which are
                counted.
            most: spans kept at a time; even.
        """
        self._joins = joins
        self._most = most
        self._lock = Lock()
        self._pieces: list[_Piece] = []
        self._open_ns: int | None = None

    def begin(self, at_ns: int) -> None:
        """Begin a span. A span that was begun before and never ended is dropped."""
        self._open_ns = at_ns

    def end(self, at_ns: int) -> None:
        """End the open span. Without one, nothing happens."""
        with self._lock:
            begun_ns, self._open_ns = self._open_ns, None
            if begun_ns is not None:
                self._add(begun_ns, at_ns)

    def add(self, start_ns: int, end_ns: int) -> None:
        """Add a span that is over."""
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
        """Return the spans between two moments, clipped to them. Only what lies later is kept."""
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
    """Return the time in which at least one span is active, in order."""
    found: list[_Piece] = []
    for start_ns, end_ns in sorted(pieces):
        if found and start_ns <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end_ns)
        else:
            found.append((start_ns, end_ns))
    return found
