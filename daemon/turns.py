"""How long the control thread listens, and how long it rests from it.

Covers: the times. Pure. Does not cover: listening (emlio.daemon.control).
"""

from emlio.daemon.limits import MOST_REST_NS, MOST_TURN_NS

__all__ = ["Turns"]


class Turns:
    """However many messages come, they take half of the thread's time at most."""

    def __init__(self) -> None:
        self._began_ns = 0
        self._rest_until_ns = 0

    def begin(self, now_ns: int) -> bool:
        """Whether it may listen now; then a turn begins."""
        self._began_ns = now_ns
        return now_ns >= self._rest_until_ns

    def over(self, now_ns: int) -> bool:
        """Whether the turn is used up, though more may be waiting; then it rests as long as it listened."""
        took_ns = now_ns - self._began_ns
        if took_ns < MOST_TURN_NS:
            return False
        self._rest_until_ns = now_ns + min(took_ns, MOST_REST_NS)
        return True

    def rest_ns(self, now_ns: int) -> int:
        """How long it still rests; 0 where it may listen."""
        return max(self._rest_until_ns - now_ns, 0)

    def deadline_ns(self, now_ns: int) -> int | None:
        """When it may listen again; None where it may now."""
        return self._rest_until_ns if now_ns < self._rest_until_ns else None
