"""The number of files that this process may still open.

Each connection takes some, and the user's own program needs others. libzmq aborts the process if it
cannot open a file that it needs internally, so new connections are refused before files run out.

Covers: counting, from time to time. Used by one thread. Does not cover: the consequences
(emlio.receiver.connection.lane_plane).
"""

import time
from collections.abc import Callable
from typing import Final

from emlio.open_limits import descriptor_limit, open_descriptors

__all__ = ["OpenFiles"]

_KEPT: Final = 16
_KEPT_PART: Final = 16
"""A sixteenth of the limit, and at least this many, are left to the user's program."""

_COUNTED_NS: Final = 100_000_000
"""Counting takes microseconds for each file, and many lanes are connected at a time."""


class OpenFiles:
    """Counts the files that this process may still open."""

    def __init__(
        self,
        limit: Callable[[], int] = descriptor_limit,
        count: Callable[[], int | None] = open_descriptors,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Prepare to count.

        Args:
            limit: returns how many the process may have.
            count: returns how many it has; None if even counting needs one that it cannot have.
            clock_ns: returns the time.
        """
        self._limit = limit
        self._count = count
        self._clock_ns = clock_ns
        self._counted_ns: int | None = None
        self._kept = 0
        self._left = 0

    @property
    def limit(self) -> int:
        """The number of files that the process may have."""
        return self._limit()

    def take(self, files: int, *, from_kept: bool = False) -> bool:
        """Return whether so many more may be opened, and count them if so.

        Args:
            files: how many.
            from_kept: take from what is kept, too, but for half of it: without a conversation with
                a daemon nothing goes on, so a low limit must not end one that could be had.
        """
        now_ns = self._clock_ns()
        if from_kept or self._counted_ns is None or now_ns - self._counted_ns >= _COUNTED_NS:
            self._counted_ns = now_ns
            used, limit = self._count(), self._limit()
            self._kept = max(_KEPT, limit // _KEPT_PART)
            self._left = -self._kept if used is None else limit - used - self._kept
        if self._left + (self._kept // 2 if from_kept else 0) < files:
            return False
        self._left -= files
        return True
