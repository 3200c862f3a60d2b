"""The number of files that this process may still open.

Each connection takes some, and the user's own program needs others. libzmq aborts the process if it
cannot open a file that it needs internally, so new connections are refused before files run out.

Covers: counting, from time to time, for all loaders of the process. Does not cover: the
consequences (emlio.receiver.connection.lane_plane).
"""

import functools
import os
import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Final

from emlio.open_limits import descriptor_limit, open_descriptors

__all__ = ["OpenFiles", "files_of_process"]

_KEPT: Final = 16
_KEPT_PART: Final = 16
"""A sixteenth of the limit, and at least this many, are left to the user's program."""

_COUNTED_NS: Final = 100_000_000
"""Counting takes microseconds for each file, and many lanes are connected at a time."""

_OPENED_NS: Final = 10_000_000
"""libzmq opens the last files of a connection, and closes all of them, within this time, in threads
of its own. A count as recent holds if too few are left, too."""

_LATE: Final = 2
"""Files that a recent connection may be about to open, so a count may lack them."""


class OpenFiles:
    """Counts the files that this process may still open. Thread-safe."""

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
        self._lock = Lock()
        self._counted_ns: int | None = None
        self._taken_ns: deque[int] = deque()  # when connections took files, the latest only
        self._kept = 0
        self._left = 0

    @property
    def limit(self) -> int:
        """The number of files that the process may have."""
        return self._limit()

    def take(self, files: int, *, leave: int = 0, from_kept: bool = False) -> bool:
        """Return whether a connection may open so many more, and count them if so.

        Args:
            files: how many.
            leave: how many must be left after that, beside what is kept.
            from_kept: take from what is kept, too, but for half of it: without a conversation with
                a daemon nothing goes on, so a low limit must not end one that could be had.
        """
        with self._lock:
            now_ns = self._clock_ns()
            valid_ns = 0 if from_kept else _OPENED_NS
            if self._suffices(files + leave, from_kept=from_kept):
                valid_ns = _COUNTED_NS
            if self._counted_ns is None or now_ns - self._counted_ns >= valid_ns:
                self._count_again(now_ns)
            if not self._suffices(files + leave, from_kept=from_kept):
                return False
            self._left -= files
            self._taken_ns.append(now_ns)
            return True

    def _suffices(self, files: int, *, from_kept: bool) -> bool:
        return self._left + (self._kept // 2 if from_kept else 0) >= files

    def _count_again(self, now_ns: int) -> None:
        self._counted_ns = now_ns
        while self._taken_ns and now_ns - self._taken_ns[0] >= _OPENED_NS:
            self._taken_ns.popleft()
        used, limit = self._count(), self._limit()
        self._kept = max(_KEPT, limit // _KEPT_PART)
        self._left = -self._kept if used is None else limit - used - self._kept
        self._left -= _LATE * len(self._taken_ns)


def files_of_process() -> OpenFiles:
    """Return the count that all loaders of this process share."""
    return _files_of(os.getpid())


@functools.cache
def _files_of(_process: int) -> OpenFiles:
    return OpenFiles()  # another one after a fork: the parent's lock may be held by a thread that is not there
