"""Actions that a thread runs later.

Pure. Does not cover: waiting.
"""

import heapq
import itertools
from collections.abc import Callable

__all__ = ["Timers"]


class Timers:
    """A queue of actions by due time. Used by one thread."""

    def __init__(self) -> None:
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = itertools.count()  # orders actions that are due at the same time

    def at(self, due_ns: int, action: Callable[[], None]) -> None:
        """Run an action at this time."""
        heapq.heappush(self._queue, (due_ns, next(self._serial), action))

    def due_ns(self) -> int | None:
        """Return the time at which the next action is due; None if there is none."""
        return self._queue[0][0] if self._queue else None

    def take(self, now_ns: int) -> Callable[[], None] | None:
        """Remove and return the next action that is due by now; None if none is."""
        return heapq.heappop(self._queue)[2] if self._queue and self._queue[0][0] <= now_ns else None
