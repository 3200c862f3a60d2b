"""A steady rhythm for what repeats itself.

Covers: how long to wait until the next turn. Pure. Does not cover: waiting.
"""

__all__ = ["Rhythm"]


class Rhythm:
    """Turns at equal intervals. What came late is made up for, as far as it is allowed. Used by one thread."""

    def __init__(self, interval_ns: int, made_up_ns: int) -> None:
        """A rhythm whose first turn is now.

        Args:
            interval_ns: from turn to turn; 0 for as fast as it goes.
            made_up_ns: of a delay that is longer, the rest is lost.
        """
        self._interval_ns = interval_ns
        self._made_up_ns = made_up_ns
        self._due_ns: int | None = None

    def wait_ns(self, now_ns: int) -> int:
        """A turn is over: how long until the next one."""
        if not self._interval_ns:
            return 0
        due_ns = now_ns if self._due_ns is None else self._due_ns
        self._due_ns = max(due_ns + self._interval_ns, now_ns - self._made_up_ns)
        return max(self._due_ns - now_ns, 0)
