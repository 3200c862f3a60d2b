"""Which lanes of a stream may have a message while not all of them are connected yet.

Lanes are connected one after the other, within moments. Without a rule the first of them would take all that it can hold, the
first batch with it, and young connections carry little in a round trip: what the others could carry beside it would wait.

Covers: the rule, which ends by itself. Pure. Does not cover: whether a lane has room (emlio.daemon.transport).
"""

__all__ = ["EvenStart"]

_MESSAGES = 2
_LONGEST_NS = 50_000_000
"""Lanes that were ordered together are all there by then; one whose handshake was lost is not waited for."""


class EvenStart:
    """Until each lane has had a message, or for a while after the first had one, a lane gets two. Used by one thread."""

    def __init__(self, lanes: int) -> None:
        """Nothing is sent.

        Args:
            lanes: of the stream.
        """
        self._given = [0] * lanes
        self._ends_ns: int | None = None
        self._over = lanes < 2

    def may_have(self, lane: int, now_ns: int) -> bool:
        """Whether this lane may have one now."""
        if not self._over and self._ends_ns is not None and now_ns >= self._ends_ns:
            self._over = True
        return self._over or self._given[lane] < _MESSAGES

    def gave(self, lane: int, now_ns: int) -> None:
        """It has one."""
        if self._over:
            return
        self._given[lane] += 1
        if self._ends_ns is None:
            self._ends_ns = now_ns + _LONGEST_NS
        self._over = all(self._given)

    @property
    def ends_ns(self) -> int | None:
        """When more lanes may have one although nothing happened; None where nothing like that is to be waited for."""
        return None if self._over else self._ends_ns
