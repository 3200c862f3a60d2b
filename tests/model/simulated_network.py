"""The network between one rank and its daemons, in one thread and by a clock that is told the time.

Covers: what `emlio.receiver.connection.transport.Network` offers, made of queues; connections that end, fall silent and lose
what was under way. Does not cover: keys, when that happens (simulated_job), daemons (simulated_daemon).
"""

from collections import deque
from collections.abc import Iterable

from emlio.receiver.addresses.connection_events import LaneEvent, LinkEvent
from emlio.receiver.addresses.lane_pass import LanePass
from emlio.receiver.addresses.trust import Credentials
from emlio_testing.clock import ManualClock
from emlio_testing.link import Link, LinkFaults

__all__ = ["SimulatedControl", "SimulatedLane", "SimulatedNetwork"]


_SILENT_NS = 10_000_000_000


class SimulatedControl:
    """The rank's end of a control connection.

    Attributes:
        endpoint: the daemon's.
        identity: the connection's, as the daemon sees it; another one after it connected again.
        up, down: what is under way.
        connected, refused: see `emlio.receiver.connection.transport.ControlLink`.
    """

    connected = True
    refused = False

    def __init__(self, network: "SimulatedNetwork", endpoint: str) -> None:
        self.endpoint = endpoint
        self.closed = False
        self._network = network
        self._inbox: deque[bytes] = deque()
        self._broken = False
        self._round_trip_ns = network.round_trip_ns
        self._connect()

    def connect_again(self, *, told: bool) -> None:
        """Lose what is under way; the daemon takes what comes for another peer's. The rank may be told, or not."""
        self._broken = self._broken or told
        self._connect()

    def _connect(self) -> None:
        network = self._network
        self.identity = network.next_number()
        self.up = Link(network.clock, network.faults, seed=2 * self.identity)
        self.down = Link(network.clock, network.faults, seed=2 * self.identity + 1)

    def deliver(self) -> None:
        """Let arrive what has had its time."""
        self._inbox.extend(self.down.arrived())

    @property
    def readable(self) -> bool:
        """Whether something is waiting."""
        return bool(self._inbox) or self._broken or self._round_trip_ns is not None

    def news(self) -> LinkEvent | None:
        """See `emlio.receiver.connection.transport.ControlLink`."""
        broken, self._broken = self._broken and not self.closed, False
        return LinkEvent.BROKEN if broken else None

    def take_round_trip_ns(self) -> int | None:
        """See `emlio.receiver.connection.transport.ControlLink`."""
        round_trip_ns, self._round_trip_ns = self._round_trip_ns, None
        return round_trip_ns

    def send(self, data: bytes) -> None:
        """See `emlio.receiver.connection.transport.ControlLink`."""
        self.up.send(data)

    def receive(self) -> bytes | None:
        """See `emlio.receiver.connection.transport.ControlLink`."""
        return self._inbox.popleft() if self._inbox else None

    def close(self, linger_ms: int = 0) -> None:
        """See `emlio.receiver.connection.transport.ControlLink`."""
        if not linger_ms:
            self.up.cut()
        self.closed = True


class SimulatedLane:
    """The rank's end of a lane, and what lies between it and the daemon's end.

    Attributes:
        endpoint: the address it connects to, whoever listens there.
        shown: what it shows to be let in there.
        down: frames under way to the rank, and those that have come.
        up: credits under way to the daemon.
        ended: its connection ended, or never was. What is under way to the rank still comes.
        silent: its connection carries nothing any more, and neither end is told.
        full: the rank's queue takes no more credits.
        silent_since_ns: when that was seen first, 0 before.
    """

    def __init__(self, endpoint: str, shown: LanePass) -> None:
        self.endpoint = endpoint
        self.shown = shown
        self.closed = False
        self.down: deque[bytes] = deque()
        self.up: deque[bytes] = deque()
        self.ended = False
        self.silent = False
        self.full = False
        self.silent_since_ns = 0
        self._news: list[LaneEvent] = []

    @property
    def readable(self) -> bool:
        """Whether something is waiting."""
        return bool(self.down)

    @property
    def carries(self) -> bool:
        """Whether what is sent over it arrives."""
        return not (self.closed or self.ended or self.silent)

    def tell(self, *news: LaneEvent) -> None:
        """Let the rank know what became of it."""
        self._news += news

    def end(self, event: LaneEvent, arriving: int) -> None:
        """End the connection: of what is under way to the rank so many frames still arrive, and nothing to the daemon."""
        while len(self.down) > arriving:
            self.down.pop()
        self.up.clear()
        self.ended = True
        self.tell(event)

    # ---- emlio.receiver.connection.transport.Lane ------------------------------------------------------------------------------

    def news(self) -> list[LaneEvent]:
        """What became of the connection since this was asked last."""
        news, self._news = self._news, []
        return news

    def receive(self) -> memoryview | None:
        """A frame."""
        return memoryview(self.down.popleft()) if self.down else None

    def send(self, data: bytes) -> bool:
        """Queue a credit."""
        if self.full or self.ended:
            return False
        if not self.silent:
            self.up.append(data)
        return True

    def close(self) -> None:
        """Disconnect."""
        self.closed = True
        self.down.clear()
        self.up.clear()


class SimulatedNetwork:
    """All connections of a rank.

    Attributes:
        clock: by which messages travel.
        faults: how bad the control connections are that are made from now on.
        round_trip_ns: what the handshakes of connections take that are made from now on; None where that is not known.
        controls, lanes: those that are open.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.faults = LinkFaults()
        self.round_trip_ns: int | None = None
        self.controls: list[SimulatedControl] = []
        self.lanes: list[SimulatedLane] = []
        self._number = 0
        self._not_waited_for: set[object] = set()

    def next_number(self) -> int:
        """A number for each connection."""
        self._number += 1
        return self._number

    def lanes_to(self, endpoint: str) -> list[SimulatedLane]:
        """Those to a data port that the rank did not close."""
        return [lane for lane in self.lanes if lane.endpoint == endpoint and not lane.closed]

    def tidy(self) -> None:
        """Forget what was closed. Of connections that carry nothing libzmq notices it after a while."""
        for lane in self.lanes:
            if lane.silent and not lane.ended:
                lane.silent_since_ns = lane.silent_since_ns or self.clock.monotonic_ns()
                if self.clock.monotonic_ns() - lane.silent_since_ns >= _SILENT_NS:
                    lane.end(LaneEvent.ENDED, len(lane.down))
        self.controls = [control for control in self.controls if not control.closed]
        self.lanes = [lane for lane in self.lanes if not lane.closed]

    # ---- emlio.receiver.connection.transport.Network --------------------------------------------------------------------------

    def control(self, endpoint: str, _credentials: Credentials | None) -> SimulatedControl:
        """Connect to a daemon's control port."""
        control = SimulatedControl(self, endpoint)
        self.controls.append(control)
        return control

    def lane(self, endpoint: str, pass_: LanePass, *, leave: int | None = None) -> SimulatedLane:
        """Connect to a daemon's data port."""
        lane = SimulatedLane(endpoint, pass_)
        self.lanes.append(lane)
        return lane

    def forget(self, thing: object) -> None:
        """Wait for it no longer."""
        self._not_waited_for.add(thing)

    def wait(
        self, timeout_ms: int | None, things: Iterable[SimulatedControl | SimulatedLane]
    ) -> list[SimulatedControl | SimulatedLane]:
        """Those of `things` that can be read; time passes elsewhere."""
        return [thing for thing in things if thing.readable and thing not in self._not_waited_for]

    def close(self) -> None:
        """Nothing is left to be freed."""
