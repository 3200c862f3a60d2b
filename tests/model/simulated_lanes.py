"""The data port of a simulated daemon: the real gate lets lanes in, and the real rules say what each may carry.

Covers: lanes that come up, are turned away, end noticed or unnoticed; their credits. Does not cover: what is sent
(simulated_daemon), when something goes wrong (simulated_job).
"""

import random

from simulated_network import SimulatedLane, SimulatedNetwork

from emlio.daemon.access.gate import ConnectionRequest
from emlio.daemon.access.lane_gate import DATA_PORT_NAME, Admitted, LaneGate, Refused
from emlio.daemon.lanes.group import Lane, LaneGroup, LaneState
from emlio.errors import RemoteProtocolError
from emlio.receiver.addresses.connection_events import LaneEvent

__all__ = ["DataPort"]

_LIMITS = (1, 300, 1 << 16, 1 << 20)
"""Of a lane: from one message at a time to more than any test sends."""


class DataPort:
    """Of one process.

    Attributes:
        shut: what lanes meet that connect from now on; None where they are let in if the gate admits them.
        late: no credit arrives for now.
    """

    def __init__(self, host: str, draw: random.Random) -> None:
        """Nobody is expected."""
        self.shut: LaneEvent | None = None
        self.late = False
        self.endpoint = f"tcp://{host}:5556"
        self._host = host
        self._draw = draw
        self._gate = LaneGate()
        self._groups: dict[str, LaneGroup] = {}
        self._knocks: dict[bytes, SimulatedLane] = {}
        self._ends: dict[Lane, SimulatedLane] = {}
        self._seen: set[SimulatedLane] = set()

    def expect(self, session: int, secret: bytes) -> LaneGroup:
        """Lanes of this session are let in from now on."""
        group = LaneGroup(session=session, secret=secret, limit_bytes=self._draw.choice(_LIMITS))
        self._groups[group.label] = group
        self._gate.expect(group.label, secret)
        return group

    def forget(self, group: LaneGroup) -> None:
        """The session is over; what is under way on its lanes still arrives."""
        group.ended = True
        self._gate.forget(group.label)
        del self._groups[group.label]
        for lane in group:
            self._end(lane, LaneEvent.ENDED)

    def die(self, network: SimulatedNetwork, *, told: bool, loses: bool) -> None:
        """The process is gone: all lanes end, which the rank is told or not, and what is under way may be lost."""
        for end in self._mine(network):
            if not told:
                end.silent = True
            elif not end.ended:
                end.end(LaneEvent.ENDED, 0 if loses else len(end.down))
            if loses:
                end.down.clear()

    def refuse(self, network: SimulatedNetwork) -> None:
        """Nobody listens."""
        for end in self._mine(network):
            if not end.ended and not end.silent:
                end.end(LaneEvent.UNREACHABLE, 0)

    def listen(self, network: SimulatedNetwork, now_ns: int) -> set[int]:
        """Let lanes in, hear credits, notice what ended; return sessions whose ranks said what cannot be."""
        for end in self._mine(network):
            if end not in self._seen and not end.ended and not end.silent:
                self._meet(end, now_ns)
        for knock, decided in self._gate.settle(now_ns):
            self._decide(self._knocks.pop(knock.token), decided, now_ns)
        liars: set[int] = set()
        for group in list(self._groups.values()):
            for lane in list(group):
                end = self._ends[lane]
                try:
                    while end.up and end.carries and not self.late:
                        group.hear(lane, end.up.popleft())
                except RemoteProtocolError:
                    liars.add(group.session)
                if (end.ended or end.closed) and not end.silent and self._draw.random() < 0.5:
                    self._lose(group, lane)
        return liars

    def give(self, group: LaneGroup, lanes: int, frames: tuple[bytes, ...] | list[bytes]) -> Lane | None:
        """The lane that takes a message of frames like these, if one may; then `put` them."""
        for lane in group.awaited(lanes):
            if self._ends[lane].carries and self._draw.random() < 0.5:
                group.came_up(lane)
        size_bytes = sum(len(frame) for frame in frames)
        return group.choose(lanes, size_bytes, lambda _: self._draw.random() < 0.7)

    def put(self, lane: Lane, frames: tuple[bytes, ...]) -> None:
        """Send them. Nobody may have noticed that the connection ended."""
        end = self._ends[lane]
        lane.gave(*(len(frame) for frame in frames))
        if end.carries:
            end.down += frames

    def _mine(self, network: SimulatedNetwork) -> list[SimulatedLane]:
        return network.lanes_to(self.endpoint)

    def _meet(self, end: SimulatedLane, now_ns: int) -> None:
        if self.shut is not None:
            # It may take its time until the rank hears of it. Whoever took the connection may say nothing.
            if self.shut is not LaneEvent.CONNECTED and self._draw.random() < 0.2:
                end.end(self.shut, 0)
            return
        self._seen.add(end)
        end.tell(LaneEvent.CONNECTED)
        knock = ConnectionRequest(port=DATA_PORT_NAME, address=self._host, user=end.shown.user, token=end.shown.token)
        decided = self._gate.judge(knock, now_ns)
        if decided is None:
            self._knocks[knock.token] = end
        else:
            self._decide(end, decided, now_ns)

    def _decide(self, end: SimulatedLane, decided: Admitted | Refused, now_ns: int) -> None:
        if end.closed or end.ended:
            return
        if isinstance(decided, Refused):
            end.end(LaneEvent.TURNED_AWAY, 0)
            return
        group = self._groups[decided.group]
        lane = group.admit(decided.number, now_ns)
        if lane.name != end.shown.name:
            raise AssertionError("both sides must call a lane the same")
        self._ends[lane] = end
        end.tell(LaneEvent.READY)
        surplus = group.surplus()
        if surplus is not None:
            self._end(surplus, LaneEvent.ENDED)
            self._lose(group, surplus)

    def _end(self, lane: Lane, event: LaneEvent) -> None:
        end = self._ends[lane]
        if not end.ended and not end.closed:
            end.end(event, len(end.down))

    def _lose(self, group: LaneGroup, lane: Lane) -> None:
        if lane.state is not LaneState.GONE:
            group.lost(lane)
            del self._ends[lane]
