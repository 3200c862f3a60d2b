"""A steady rhythm for repeated work.

Covers: the time to wait until the next turn. Pure. Does not cover: waiting.
"""

__all__ = ["Rhythm"]


class Rhythm:
    """Turns at equal intervals. Delays are made up for, up to a limit. Used by one thread."""

    def __init__(self, interval_ns: int, made_up_ns: int) -> None:
        """Create a rhythm whose first turn is now.

        Args:
            interval_ns: time from turn to turn; 0 for no waiting.
            made_up_ns: the longest delay that is made up for; the rest of a longer delay is lost.
        """
        self._interval_ns = interval_ns
        self._made_up_ns = made_up_ns
        self._due_ns: int | None = None

    def wait_ns(self, now_ns: int) -> int:
        """End a turn, and return the time to wait until the next one."""
        if not self._interval_ns:
            return 0
        due_ns = now_ns if self._due_ns is None else self._due_ns
        self._due_ns = max(due_ns + self._interval_ns, now_ns - self._made_up_ns)
        return max(self._due_ns - now_ns, 0)
