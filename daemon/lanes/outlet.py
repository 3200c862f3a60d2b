"""The state of one stream in the sending thread.

Covers: its credit, the rule for young lanes, the time that it waits and for what. Does not cover:
its lanes (emlio.daemon.lanes.group), reading (emlio.daemon.reading.stream).
"""

from enum import Enum, auto

import msgspec

from emlio.daemon.lanes.group import Lane
from emlio.daemon.lanes.stream_totals import StreamTotals
from emlio.daemon.reading.stream import Stream
from emlio.session.credits import Place, StreamCredit

__all__ = ["LaneRamp", "Outlet", "Waits"]

_MESSAGES = 2
_LONGEST_NS = 50_000_000
"""All lanes that were opened together are connected by then. A lane whose handshake was lost is not
waited for."""


class LaneRamp:
    """A limit of two messages per lane, until each lane has had one.

    Lanes connect one after the other, within moments. Without a rule the first lane would take all that
    it can hold, including the first batch. A young connection carries little per round trip, so data
    would wait that other lanes could carry.

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


class Waits(Enum):
    """The reason why a stream waits.

    Attributes:
        TURN: other streams have their turn.
        READING: no message is ready, and the next one may be sent.
        MEMORY: no message is ready, since reading waits until data under way has left.
        CREDIT: the rank allows no more, whether or not a message is ready.
        LANE: a message is ready, and no lane may have it.
    """

    TURN = auto()
    READING = auto()
    MEMORY = auto()
    CREDIT = auto()
    LANE = auto()


_WAITS_FOR = {Waits.TURN: "", Waits.MEMORY: "memory", Waits.CREDIT: "rank", Waits.LANE: "network"}


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
        self._begun = lanes
        self._start = LaneRamp(lanes if young else 1)
        self._places: dict[int, int] = {}  # positions of lanes in the ramp
        self._since_ns = now_ns
        self._last: tuple[Place, int] = (0, 0), 1  # of the message sent last: its place and size

    def now(self, now_ns: int) -> None:
        """Count the time since the last call for the reason why the stream waited."""
        totals = self.totals_at(now_ns)
        self._since_ns = now_ns  # first: another thread may then miss some time, but counts none twice
        self.totals = totals

    def totals_at(self, now_ns: int) -> StreamTotals:
        """Return the totals up to this time, with the wait that is not over. Any thread may call this.

        A stream whose last message was read waits for nothing.
        """
        totals, waits, waited_ns = msgspec.structs.replace(self.totals), self.waits, max(now_ns - self._since_ns, 0)
        if waits is Waits.READING:
            # What the reading thread has found since the last turn.
            if self.stream.parked:
                totals.blocked_ns += waited_ns
            elif not self.stream.ended:
                totals.starved_ns += waited_ns
        elif waits is not Waits.TURN:
            totals.blocked_ns += waited_ns
            totals.withheld_ns += waited_ns if waits is Waits.CREDIT else 0
        return totals

    @property
    def waits_for(self) -> str:
        """The reason why it waits now, as in `SessionFigures`. Any thread may read this."""
        waits = self.waits
        if waits is not Waits.READING:
            return _WAITS_FOR[waits]
        if self.stream.parked:
            return "memory"
        return "" if self.stream.ended else "storage"

    @property
    def place(self) -> Place:
        """Epoch and slot of the message sent last."""
        return self._last[0]

    def sent(self, place: Place, size_bytes: int) -> None:
        """Note that a message was given to a lane."""
        self.credit.sent(size_bytes)
        self._last = place, size_bytes

    @property
    def waits_for_reading(self) -> Waits:
        """The reason why the stream waits when no message is ready."""
        if self.stream.parked:
            return Waits.MEMORY
        return Waits.READING if self.credit.allows(*self._last) else Waits.CREDIT

    def may_have(self, lane: Lane, now_ns: int) -> bool:
        """Return whether a lane may have a message, by the rule for young lanes."""
        place = self._places.setdefault(lane.number, len(self._places))
        return place >= self._begun or self._start.may_have(place, now_ns)

    def gave(self, lane: Lane, now_ns: int) -> None:
        """Note that the lane was given a message."""
        place = self._places.setdefault(lane.number, len(self._places))
        if place < self._begun:
            self._start.gave(place, now_ns)

    def start_ends_ns(self, now_ns: int) -> int | None:
        """Return the time at which that rule ends; None if it is over."""
        ends_ns = self._start.ends_ns
        return ends_ns if ends_ns is not None and ends_ns > now_ns else None
