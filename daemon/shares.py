"""What each client has of something there is only so much of.

Covers: the count, for each and for all. May be used by any thread. Does not cover: how much there is (emlio.daemon.limits).
"""

from collections import Counter
from threading import RLock

__all__ = ["Shares"]


class Shares:
    """See the module."""

    def __init__(self, *, most: int, most_each: int) -> None:
        """See the class.

        Args:
            most: of all together.
            most_each: of one.
        """
        self._most = most
        self._most_each = most_each
        self._taken: Counter[bytes] = Counter()
        self._all = 0
        # Reentrant: the collector may give something back in the midst of this.
        self._lock = RLock()

    def take(self, whose: bytes, amount: int = 1) -> bool:
        """Whether there is so much for this client; then it has it."""
        with self._lock:
            if self._all + amount > self._most or self._taken[whose] + amount > self._most_each:
                return False
            self._taken[whose] += amount
            self._all += amount
            return True

    def give_back(self, whose: bytes, amount: int = 1) -> None:
        """It has so much less."""
        with self._lock:
            self._taken[whose] -= amount
            self._all -= amount
            if not self._taken[whose]:
                del self._taken[whose]

    def of(self, whose: bytes) -> int:
        """How much it has."""
        with self._lock:
            return self._taken.get(whose, 0)
