"""`Rank`, a rank's machine by a clock that a test moves."""

from dataclasses import replace

from wires import welcome
from world import World

from emlio.planner.sampling import EVERYTHING, Sampling
from emlio.receiver.addresses.host_names import daemons_at
from emlio.receiver.engine.hello import greeting
from emlio.receiver.machine.events import (
    Begun,
    Connected,
    Event,
    LaneChanged,
    LaneEvent,
    Said,
    Sought,
    TimePassed,
)
from emlio.receiver.machine.instructions import Fail, Instruction
from emlio.receiver.machine.rank import RankMachine
from emlio.receiver.machine.source import Source
from emlio.receiver.machine.surroundings import Surroundings
from emlio.receiver.setup.recovery import Recovery
from emlio.session.states import RankState
from emlio.wire.control import ControlMessage, Opened, PlanReply, Welcome, encode_control

S = 1_000_000_000
HEARTBEAT_NS = S
TIMEOUT_NS = 10 * S
BOTH = ((4, "AB"), (4, "AB"))
EACH = ((4, "A"), (4, "B"))


class Smallest:
    """Chance that always takes the smallest."""

    def uniform(self, a: float, b: float) -> float:
        return a


class Rank:
    """A machine, and two daemons that say what the test has them say."""

    def __init__(
        self, shards: tuple[tuple[int, str], ...], sampling: Sampling = EVERYTHING, *, streams: bool = True
    ) -> None:
        self.world = World(shards=shards, bound=2)
        recovery = Recovery(timeout=f"{TIMEOUT_NS}ns", heartbeat=f"{HEARTBEAT_NS}ns")
        config = replace(self.world.config, recovery=recovery, sampling=sampling, streams=streams)
        around = Surroundings(
            chances=Smallest(),
            receive_buffer_bytes=4 << 20,
            send_buffer_bytes=4 << 20,
            hello=lambda number, peer: greeting(config, f"rank-{number}", peer),
            path=lambda way: None,
        )
        self.machine = RankMachine(config, daemons_at(config.address.peers), (), around)
        self.now_ns = 1000 * S
        self.failed: list[Exception] = []

    def tell(self, event: Event) -> list[Instruction]:
        found = self.machine.handle(event, self.now_ns)
        self.failed += [told.error for told in found if isinstance(told, Fail)]
        return found

    def say(self, daemon: int, message: ControlMessage) -> None:
        self.tell(Said(daemon, encode_control(message)))

    def source(self, daemon: int) -> Source:
        source = self.machine.pool.sources.number(daemon)
        assert source is not None
        return source

    def welcome(self, daemon: int, told: Welcome | None = None) -> None:
        self.tell(Connected(daemon, 100_000))
        self.say(daemon, told or welcome(self.world, daemon, 1))

    def stream(self) -> None:
        """All daemons agree, and send what the user wants."""
        self.tell(Begun())
        for daemon in (0, 1):
            self.welcome(daemon)
        self.agree()

    def agree(self) -> None:
        for daemon in (0, 1):
            self.say(daemon, PlanReply(need_catalog=False))
        self.tick()
        self.tell(Sought(0, 0, 0))
        self.tick()
        self.come_up()

    def come_up(self) -> None:
        for daemon in (0, 1):
            for lane_reader in self.source(daemon).stream.lanes:
                self.tell(LaneChanged(daemon, lane_reader.number, LaneEvent.READY))
        self.open()

    def open(self) -> None:
        for daemon in (0, 1):
            talk = self.source(daemon).conversation
            if talk.state is RankState.OPENING:
                self.say(daemon, Opened(stream=talk.stream, lanes=1))

    def tick(self) -> None:
        self.tell(TimePassed(hungry=False, quiet=True))

    def wait(self, wait_ns: int, *talking: int) -> int:
        """Let so much time pass while these daemons speak; how often the machine did not want to wait at all."""
        until_ns, hurried = self.now_ns + wait_ns, 0
        while self.now_ns < until_ns and not self.failed:
            deadline_ns = self.machine.deadline_ns(hungry=False)
            hurried += deadline_ns is not None and deadline_ns <= self.now_ns
            self.now_ns = max(self.now_ns + 1_000_000, deadline_ns or 0)
            for daemon in talking:
                self.source(daemon).conversation._heard_ns = self.now_ns
            self.tick()
            self.open()
        return hurried
