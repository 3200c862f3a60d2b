"""The state of one stream in the sending thread.

Covers: its credit, the rule for young lanes, the time that it waits and for what. Does not cover:
its lanes (emlio.daemon.lanes.group), reading (emlio.daemon.reading.stream).
"""

from enum import Enum, auto

from emlio.daemon.lanes.group import Lane
from emlio.daemon.lanes.lane_ramp import LaneRamp
from emlio.daemon.lanes.stream_totals import StreamTotals
from emlio.daemon.reading.stream import Stream
from emlio.session.credits import StreamCredit

__all__ = ["Outlet", "Waits"]


class Waits(Enum):
    """The reason why a stream waits.

    Attributes:
        TURN: other streams have their turn.
        READING: no message is ready.
        MEMORY: no message is ready, since reading waits until data under way has left.
        CREDIT: a message is ready, and the rank allows no more.
        LANE: a message is ready, and no lane may have it.
    """

    TURN = auto()
    READING = auto()
    MEMORY = auto()
    CREDIT = auto()
    LANE = auto()


class Outlet:
    """One stream in the sending thread. Used by that thread only.

    Attributes:
        stream: the stream.
        lanes: the number of lanes it may use.
        credit: the rank's credit.
        totals: what was sent; any thread may read them.
        waits: the reason why it has waited since the last `now`.
        queued: whether it waits for its turn.
        closed: whether it sends no more.
        retry_ns: the time at which it is tried again in any case.
    """

    def __init__(self, stream: Stream, lanes: int, credit: StreamCredit, now_ns: int, *, young: bool) -> None:
        """See the class; `young` means that no lane had a message yet."""
        self.stream = stream
        self.lanes = lanes
        self.credit = credit
        self.totals = StreamTotals()
        self.waits = Waits.READING
        self.queued = False
        self.closed = False
        self.retry_ns: int | None = None
        self._start = LaneRamp(lanes if young else 1)
        self._places: dict[int, int] = {}  # positions of lanes in the ramp
        self._since_ns = now_ns

    def now(self, now_ns: int) -> None:
        """Count the time since the last call for the reason why the stream waited."""
        waited_ns, self._since_ns = now_ns - self._since_ns, now_ns
        if self.waits is Waits.READING:
            self.totals.starved_ns += waited_ns
        elif self.waits is not Waits.TURN:
            self.totals.blocked_ns += waited_ns
            self.totals.withheld_ns += waited_ns if self.waits is Waits.CREDIT else 0

    def may_have(self, lane: Lane, now_ns: int) -> bool:
        """Return whether a lane may have a message, by the rule for young lanes."""
        place = self._places.setdefault(lane.number, len(self._places))
        return place >= self.lanes or self._start.may_have(place, now_ns)

    def gave(self, lane: Lane, now_ns: int) -> None:
        """Note that the lane was given a message."""
        place = self._places.setdefault(lane.number, len(self._places))
        if place < self.lanes:
            self._start.gave(place, now_ns)

    def start_ends_ns(self, now_ns: int) -> int | None:
        """Return the time at which that rule ends; None if it is over."""
        ends_ns = self._start.ends_ns
        return ends_ns if ends_ns is not None and ends_ns > now_ns else None
