"""The time that a thread works in turns, which other threads may read during a turn.

Does not cover: processor time (emlio.receiver.timing.thread_times).
"""

import time
from collections.abc import Callable

__all__ = ["TurnWork"]


class TurnWork:
    """The work of one thread. `begin` and `end` belong to that thread; any thread may read the total."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """Begin without work; `now_ns` tells the time."""
        self._now_ns = now_ns
        self._done_ns = 0
        self._turn: tuple[int, int] | None = None  # the work before the turn in progress, and its begin

    def begin(self) -> None:
        """Begin a turn."""
        self._turn = self._done_ns, self._now_ns()

    def end(self) -> None:
        """End the turn."""
        self._done_ns = self.total_ns
        self._turn = None

    @property
    def total_ns(self) -> int:
        """The time worked so far, including the turn in progress."""
        turn = self._turn
        return self._done_ns if turn is None else turn[0] + max(self._now_ns() - turn[1], 0)
