"""A rule for the start of a stream, while not all of its lanes are connected yet.

Lanes connect one after the other, within moments. Without a rule the first lane would take all that
it can hold, including the first batch. A young connection carries little per round trip, so data
would wait that other lanes could carry.

Covers: the rule, which ends by itself. Pure. Does not cover: a lane's credit
(emlio.daemon.lanes.group).
"""

__all__ = ["LaneRamp"]

_MESSAGES = 2
_LONGEST_NS = 50_000_000
"""All lanes that were opened together are connected by then. A lane whose handshake was lost is not
waited for."""


class LaneRamp:
    """A limit of two messages per lane, until each lane has had one.

    The limit also ends some time after the first message. Used by one thread.
    """

    def __init__(self, lanes: int) -> None:
        """See the class.

        Args:
            lanes: the number of lanes of the stream.
        """
        self._given = [0] * lanes
        self._ends_ns: int | None = None
        self._over = lanes < 2

    def may_have(self, lane: int, now_ns: int) -> bool:
        """Return whether this lane may have a message now."""
        if not self._over and self._ends_ns is not None and now_ns >= self._ends_ns:
            self._over = True
        return self._over or self._given[lane] < _MESSAGES

    def gave(self, lane: int, now_ns: int) -> None:
        """Note that the lane was given a message."""
        if self._over:
            return
        self._given[lane] += 1
        if self._ends_ns is None:
            self._ends_ns = now_ns + _LONGEST_NS
        self._over = all(self._given)

    @property
    def ends_ns(self) -> int | None:
        """The time at which the rule ends by itself; None if it is over or nothing was sent."""
        return None if self._over else self._ends_ns
