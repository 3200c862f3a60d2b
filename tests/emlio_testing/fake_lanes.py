"""Fake lanes of a rank, controlled by a test."""

from collections import deque
from random import Random

from emlio.receiver.addresses.connection_events import LaneEvent
from emlio.receiver.addresses.lane_pass import LanePass
from emlio.receiver.machine.instructions import CloseLane, ConnectLane, SayCredit
from emlio.receiver.machine.lane_set import LaneReader, LaneSet
from emlio.receiver.machine.surroundings import Outbox
from emlio.wire.credit import Credit

__all__ = ["FakeLane", "LaneStage"]


class FakeLane:
    """A lane that records what is sent. `events` are reported by the next `watch`."""

    def __init__(self, number: int, endpoint: str, shown: LanePass) -> None:
        self.number = number
        self.endpoint = endpoint
        self.shown = shown
        self.events: deque[LaneEvent] = deque()
        self.said: list[Credit] = []
        self.takes = True
        self.closed = False


class LaneStage:
    """A set of lanes, and all lanes that it ever connected.

    Attributes:
        lanes: the lanes, in the order in which they were connected.
        set: the set.
    """

    def __init__(self, secret: bytes) -> None:
        """See the class; `secret` is the session's."""
        self.lanes: list[FakeLane] = []
        self._out = Outbox()
        self.set = LaneSet(0, self._out, "store1", secret, Random(1))

    @property
    def open(self) -> list[FakeLane]:
        """The lanes that are not closed."""
        return [lane for lane in self.lanes if not lane.closed]

    def tap(self, lane: FakeLane) -> LaneReader:
        """Return the rank's end of a lane."""
        tap = self.set.find(lane.number)
        assert tap is not None
        return tap

    def connect(self, endpoint: str, lanes: int, now_ns: int) -> None:
        """See `LaneSet`."""
        self._out.now_ns = now_ns
        self.set.connect(endpoint, lanes)
        self._carry_out()

    def watch(self, now_ns: int) -> bool:
        """Report the lanes' events, and let the set look; return whether messages may be lost."""
        self._out.now_ns = now_ns
        lost = False
        for lane in self.open:
            while lane.events:
                lost = self.set.changed(lane.number, lane.events.popleft()) or lost
        self.set.watch()
        self._carry_out()
        return lost

    def renew(self, now_ns: int) -> None:
        """See `LaneSet`."""
        self._out.now_ns = now_ns
        self.set.renew()
        self._carry_out()

    def replace(self, tap: LaneReader) -> None:
        """See `LaneSet`."""
        self.set.replace(tap)
        self._carry_out()

    def say(self, credit: Credit, *, changed: bool, quiet: bool) -> None:
        """See `LaneSet`."""
        self.set.say(credit, changed=changed, quiet=quiet)
        self._carry_out()

    def close(self) -> None:
        """See `LaneSet`."""
        self.set.close()
        self._carry_out()

    def _carry_out(self) -> None:
        while waiting := self._out.take():
            for instruction in waiting:
                match instruction:
                    case ConnectLane(lane=number, endpoint=endpoint, shown=shown):
                        assert number == len(self.lanes), "lanes are numbered in the order in which they are connected"
                        self.lanes.append(FakeLane(number, endpoint, shown))
                    case CloseLane(lane=number):
                        assert not self.lanes[number].closed
                        self.lanes[number].closed = True
                    case SayCredit(lane=number, credit=credit):
                        self._say(self.lanes[number], credit)
                    case _:
                        raise AssertionError(f"lanes must not ask for {instruction}")

    def _say(self, lane: FakeLane, credit: Credit) -> None:
        assert not lane.closed
        if lane.takes:
            lane.said.append(credit)
        else:
            self.set.full(lane.number)
