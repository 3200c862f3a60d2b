"""The network between one rank and its daemons, in one thread and by a clock that is told the time.

Covers: what `emlio.receiver.transport.Network` offers, made of queues; connections that are cut, connect again and lose what was
under way. Does not cover: keys, when that happens (simulated_job), daemons (simulated_daemon).
"""

from collections import deque
from collections.abc import Iterable

from emlio.receiver.transport import Credentials, LinkEvent
from emlio.testing.clock import ManualClock
from emlio.testing.link import Link, LinkFaults

__all__ = ["SimulatedControl", "SimulatedLane", "SimulatedNetwork"]


class SimulatedControl:
    """The rank's end of a control connection.

    Attributes:
        endpoint: the daemon's.
        identity: the connection's, as the daemon sees it; another one after it connected again.
        up, down: what is under way.
        connected, refused: see `emlio.receiver.transport.ControlLink`.
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
        """See `emlio.receiver.transport.ControlLink`."""
        broken, self._broken = self._broken and not self.closed, False
        return LinkEvent.BROKEN if broken else None

    def take_round_trip_ns(self) -> int | None:
        """See `emlio.receiver.transport.ControlLink`."""
        round_trip_ns, self._round_trip_ns = self._round_trip_ns, None
        return round_trip_ns

    def send(self, data: bytes) -> None:
        """See `emlio.receiver.transport.ControlLink`."""
        self.up.send(data)

    def receive(self) -> bytes | None:
        """See `emlio.receiver.transport.ControlLink`."""
        return self._inbox.popleft() if self._inbox else None

    def close(self, linger_ms: int = 0) -> None:
        """See `emlio.receiver.transport.ControlLink`."""
        if not linger_ms:
            self.up.cut()
        self.closed = True


class SimulatedLane:
    """The rank's end of a lane.

    Attributes:
        endpoint: the address it connects to, whoever listens there.
        token: what it shows to be let in there.
        queue: what is under way, and what has come.
        cut_until: the step at which it connects again.
    """

    def __init__(self, endpoint: str, token: bytes) -> None:
        self.endpoint = endpoint
        self.token = token
        self.closed = False
        self.queue: deque[bytes] = deque()
        self.cut_until = 0

    @property
    def readable(self) -> bool:
        """Whether something is waiting."""
        return bool(self.queue)

    def receive(self) -> memoryview | None:
        """See `emlio.receiver.transport.Lane`."""
        return memoryview(self.queue.popleft()) if self.queue else None

    def close(self) -> None:
        """See `emlio.receiver.transport.Lane`."""
        self.closed = True
        self.queue.clear()


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

    def tidy(self) -> None:
        """Forget what was closed."""
        self.controls = [control for control in self.controls if not control.closed]
        self.lanes = [lane for lane in self.lanes if not lane.closed]

    # ---- emlio.receiver.transport.Network --------------------------------------------------------------------------

    def control(self, endpoint: str, _credentials: Credentials | None) -> SimulatedControl:
        """Connect to a daemon's control port."""
        control = SimulatedControl(self, endpoint)
        self.controls.append(control)
        return control

    def lane(self, endpoint: str, token: bytes, _credentials: Credentials | None) -> SimulatedLane:
        """Connect to a lane."""
        lane = SimulatedLane(endpoint, token)
        self.lanes.append(lane)
        return lane

    def forget(self, thing: object) -> None:
        """Wait for it no longer."""
        self._not_waited_for.add(thing)

    def remember(self, thing: object) -> None:
        """Wait for it again."""
        self._not_waited_for.discard(thing)

    def wait(
        self, timeout_ms: int | None, things: Iterable[SimulatedControl | SimulatedLane]
    ) -> list[SimulatedControl | SimulatedLane]:
        """Those of `things` that can be read; time passes elsewhere."""
        return [thing for thing in things if thing.readable and thing not in self._not_waited_for]

    def close(self) -> None:
        """Nothing is left to be freed."""
