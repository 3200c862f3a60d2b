"""Times at which the control thread reads messages, and pauses between them.

Pure.
"""

from emlio.daemon.limits import MOST_REST_NS, MOST_TURN_NS

__all__ = ["DutyCycle"]


class DutyCycle:
    """A limit that gives messages at most half of the thread's time, however many come."""

    def __init__(self) -> None:
        self._began_ns = 0
        self._rest_until_ns = 0

    def begin(self, now_ns: int) -> bool:
        """Return whether messages may be read now; if so, a turn begins."""
        self._began_ns = now_ns
        return now_ns >= self._rest_until_ns

    def over(self, now_ns: int) -> bool:
        """Return whether the turn is used up, though more may be waiting.

        After such a turn, the thread pauses for as long as it has read.
        """
        took_ns = now_ns - self._began_ns
        if took_ns < MOST_TURN_NS:
            return False
        self._rest_until_ns = now_ns + min(took_ns, MOST_REST_NS)
        return True

    def rest_ns(self, now_ns: int) -> int:
        """Return the rest of the pause; 0 if messages may be read now."""
        return max(self._rest_until_ns - now_ns, 0)

    def deadline_ns(self, now_ns: int) -> int | None:
        """Return the end of the pause; None if messages may be read now."""
        return self._rest_until_ns if now_ns < self._rest_until_ns else None
