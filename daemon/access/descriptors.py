"""A limit on lanes that keeps the daemon from running out of file descriptors.

When no descriptor is left, a new connection gets no answer at all. So lanes are refused earlier,
and some descriptors remain for new connections and for shards.

Covers: counting. Does not cover: descriptors of shards (emlio.store.opened.room).
"""

import time
from collections.abc import Callable
from threading import Lock

from emlio.errors import TransportError
from emlio.open_limits import descriptor_limit, open_descriptors

__all__ = ["Descriptors"]

_KEPT = 32
_KEPT_PART = 10
"""Descriptors kept free for new connections: a tenth of the limit, and at least `_KEPT`."""

_COUNTED_NS = 100_000_000
"""The time for which a count stays valid. Counting takes microseconds per descriptor, and the ranks
of a job that starts cause a thousand checks in a second."""


class Descriptors:
    """A check of the free descriptors before a lane is admitted. May be used by any thread."""

    def __init__(
        self,
        limit: Callable[[], int] = descriptor_limit,
        count: Callable[[], int | None] = open_descriptors,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """See the class.

        Args:
            limit: returns the number of descriptors that the process may have.
            count: returns the number of open descriptors; None if they cannot be counted.
            clock_ns: returns the time.
        """
        self._limit = limit
        self._count = count
        self._clock_ns = clock_ns
        self._lock = Lock()
        self._counted_ns: int | None = None
        self._left = 0

    def check(self) -> None:
        """Raise `TransportError` unless another lane may be admitted now."""
        self._take(0)

    def take_lane(self) -> None:
        """Count an admitted lane; raise `TransportError` if no lane may be admitted now."""
        self._take(1)

    def _take(self, lanes: int) -> None:
        with self._lock:
            now_ns = self._clock_ns()
            if self._counted_ns is None or now_ns - self._counted_ns >= _COUNTED_NS:
                self._counted_ns = now_ns
                limit, used = self._limit(), self._count()
                self._left = 0 if used is None else limit - used - max(_KEPT, limit // _KEPT_PART)
            if self._left < 1:
                raise TransportError(
                    f"no open file is left for a lane: this daemon is close to its limit of {self._limit():,}. Raise "
                    "the limit (ulimit -n, or LimitNOFILE in its unit), or allow fewer connections with --lanes"
                )
            self._left -= lanes
