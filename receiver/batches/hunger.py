"""The times in which the user waited for records, while no complete batch was here.

Covers: counting them, and how much of them the receive thread worked. Does not cover: waiting
(emlio.receiver.batches.prefetch), waits for a batch that is being made.
"""

import time
from collections.abc import Callable

__all__ = ["Hunger", "TurnWork"]


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


class Hunger:
    """The waits of one loader for records.

    `begin` and `end` belong to the user's thread, `came` to the receive thread.

    Attributes:
        now: whether the user waits and no batch is here.
        wait_ns: how long, in all.
        receive_ns: for how much of it the receive thread worked.
    """

    def __init__(self, receiving: TurnWork, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """Begin without a wait.

        Args:
            receiving: the work of the receive thread.
            now_ns: tells the time.
        """
        self.now = False
        self.wait_ns = 0
        self.receive_ns = 0
        self._receiving = receiving
        self._now_ns = now_ns
        self._begun: tuple[int, int] | None = None
        self._came: tuple[int, int] | None = None

    @property
    def waited_ns(self) -> int:
        """The waits so far, with the one that goes on; any thread may ask."""
        begun, came = self._begun, self._came
        ended_ns = came[0] if came is not None else self._now_ns()
        return self.wait_ns + (max(ended_ns - begun[0], 0) if begun is not None else 0)

    def begin(self) -> None:
        """Note that the user begins to wait, and no batch is here."""
        self._came = None
        self._begun = self._now_ns(), self._receiving.total_ns
        self.now = True

    def came(self) -> None:
        """Note that a complete batch is here, if one was waited for: from now on it is being made."""
        if self.now and self._came is None:
            self._came = self._now_ns(), self._receiving.total_ns

    def end(self) -> None:
        """Note the end of the wait, if there is one."""
        begun, self._begun = self._begun, None
        self.now = False
        if begun is None:
            return
        ended_ns, worked_ns = self._came or (self._now_ns(), self._receiving.total_ns)
        wait_ns = max(ended_ns - begun[0], 0)
        self.wait_ns += wait_ns
        self.receive_ns += min(max(worked_ns - begun[1], 0), wait_ns)
