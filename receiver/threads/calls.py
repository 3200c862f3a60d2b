"""Calls of other threads that the receive thread carries out.

Covers: passing them on. Once the receive thread has ended, the calling thread carries them out.
Does not cover: the calls.
"""

from collections import deque
from collections.abc import Callable

__all__ = ["Calls"]


class Calls:
    """Calls passed to the receive thread. It calls `hear` and `end`; any thread may use `call`."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Begin without calls; `wake` wakes the receive thread."""
        self._wake = wake
        self._waiting: deque[Callable[[], None]] = deque()
        self._over = False  # from now on the calling threads run their calls themselves

    def call(self, action: Callable[[], None]) -> None:
        """Have this function called soon."""
        self._waiting.append(action)
        if self._over:
            self.hear()
        else:
            self._wake()

    def hear(self) -> None:
        """Run the waiting calls."""
        # At the end two threads may be here at once; each call is taken by one of them.
        while self._waiting:
            try:
                action = self._waiting.popleft()
            except IndexError:
                return
            action()

    def end(self) -> None:
        """Run all remaining calls. Later ones run in their own threads: none waits forever."""
        self._over = True
        self.hear()
