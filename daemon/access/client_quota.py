"""Quotas of a limited resource, per client and in total.

Does not cover: the limits themselves (emlio.daemon.limits).
"""

from collections import Counter
from threading import RLock

__all__ = ["ClientQuota"]


class ClientQuota:
    """A count of a resource, per client and in total. May be used by any thread."""

    def __init__(self, *, most: int, most_each: int) -> None:
        """See the class.

        Args:
            most: the limit for all clients together.
            most_each: the limit for one client.
        """
        self._most = most
        self._most_each = most_each
        self._taken: Counter[bytes] = Counter()
        self._all = 0
        # Reentrant: the garbage collector may call `give_back` while this thread holds the lock.
        self._lock = RLock()

    def take(self, whose: bytes, amount: int = 1) -> bool:
        """Take `amount` for the client; return False, and take nothing, if that exceeds a limit."""
        with self._lock:
            if self._all + amount > self._most or self._taken[whose] + amount > self._most_each:
                return False
            self._taken[whose] += amount
            self._all += amount
            return True

    def give_back(self, whose: bytes, amount: int = 1) -> None:
        """Note that the client has `amount` less."""
        with self._lock:
            self._taken[whose] -= amount
            self._all -= amount
            if not self._taken[whose]:
                del self._taken[whose]

    @property
    def most_each(self) -> int:
        """The limit for one client."""
        return self._most_each

    def of(self, whose: bytes) -> int:
        """Return the amount that the client has taken."""
        with self._lock:
            return self._taken.get(whose, 0)
