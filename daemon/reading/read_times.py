"""The times that reading takes, message by message, of one dataset."""

from bisect import bisect_left
from threading import Lock
from typing import Final

__all__ = ["BOUNDS_S", "ReadTimes"]

BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""From half a millisecond, a message of the page cache, to the seconds of a bucket or of a disk that hangs."""


class ReadTimes:
    """Counts by length. Used by several threads."""

    def __init__(self) -> None:
        """Begin without any."""
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_ns = 0
        self._lock = Lock()

    def add(self, took_ns: int) -> None:
        """Count a message."""
        with self._lock:
            self._counts[bisect_left(BOUNDS_S, took_ns / 1e9)] += 1
            self._sum_ns += took_ns

    def read(self) -> tuple[tuple[int, ...], float]:
        """Return the counts, the last one of what took longer than all bounds, and the sum in seconds."""
        with self._lock:
            return tuple(self._counts), self._sum_ns / 1e9
