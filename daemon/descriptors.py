"""A limit on lanes, so that the daemon never runs out of file descriptors.

A connection that comes when none is left is not answered at all, and libzmq ends the process where it finds none while it binds
(docs/adr/0016-libzmq-assertions.md). So lanes are refused while there still are some, for those who call and for shards.

Covers: counting. May be used by any thread. Does not cover: shards (emlio.reading.room).
"""

import os
import time
from collections.abc import Callable
from threading import Lock

from emlio.errors import TransportError
from emlio.open_limits import descriptor_limit

__all__ = ["Descriptors"]

_LANE = 4
"""The port that is bound, libzmq's own two for the socket, and the connection."""

_KEPT = 32
_KEPT_PART = 10
"""A tenth of all, and never fewer than that, are kept for those who call."""

_COUNTED_NS = 50_000_000
"""To count them takes microseconds for each; a job whose ranks come together asks a thousand times in a second."""


def _count_open() -> int | None:
    """Count the open descriptors of this process; None if none is left for counting."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return None


class Descriptors:
    """See the module."""

    def __init__(
        self,
        limit: Callable[[], int] = descriptor_limit,
        count: Callable[[], int | None] = _count_open,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """See the class.

        Args:
            limit: how many the process may have.
            count: how many it has.
            clock_ns: the time.
        """
        self._limit = limit
        self._count = count
        self._clock_ns = clock_ns
        self._lock = Lock()
        self._counted_ns: int | None = None
        self._left = 0

    def take_lane(self) -> None:
        """Raise `TransportError` unless a lane may be bound now."""
        with self._lock:
            now_ns = self._clock_ns()
            if self._counted_ns is None or now_ns - self._counted_ns >= _COUNTED_NS:
                self._counted_ns = now_ns
                limit, used = self._limit(), self._count()
                self._left = 0 if used is None else limit - used - max(_KEPT, limit // _KEPT_PART)
            if self._left < _LANE:
                raise TransportError(
                    f"each lane takes {_LANE} open files, and this daemon has nearly as many as it may, {self._limit():,}: allow "
                    "more (ulimit -n, or LimitNOFILE of its unit), or fewer connections with --lanes"
                )
            self._left -= _LANE
