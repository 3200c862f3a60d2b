"""The two sides of a session joined by two links, without sockets, threads or files.

Covers: carrying instructions out as the real shells do, with answers given beforehand in place of plans and lanes. Does not
cover: data messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from emlio.errors import RemoteProtocolError
from emlio.session.daemon import DaemonSession
from emlio.session.instructions import (
    Agreed,
    DaemonInstruction,
    Ended,
    EnergyCame,
    Failed,
    FreeLanes,
    Judge,
    LanesLost,
    LanesReserved,
    Listed,
    LookUpEnergy,
    LookUpSizes,
    RankInstruction,
    ReserveLanes,
    Send,
    SizesCame,
    StartStream,
    StopStream,
    StreamOpened,
)
from emlio.session.rank import RankSession
from emlio.session.stream_wanted import StreamWanted
from emlio.testing.clock import ManualClock
from emlio.testing.link import Link
from emlio.wire.control import (
    ControlMessage,
    EnergyReply,
    Hello,
    Open,
    PlanOffer,
    Refused,
    ShardRow,
    SizesReply,
    Welcome,
    decode_control,
    encode_control,
)
from emlio.wire.limits import RECORDS_PER_SIZES

__all__ = ["SessionPair", "SessionSettings", "example_hello", "example_offer", "example_rows"]


_RESERVED_SECRET = b"r" * 32


def example_hello() -> Hello:
    """A rank that is alone."""
    return Hello(
        job="job", client="client", rank=0, world_size=1, dataset="numbers", host="gpu1", pid=4711, software="0.1.0"
    )


def example_rows(count: int) -> tuple[ShardRow, ...]:
    """A list of shards."""
    return tuple(
        ShardRow(name=f"train-{number:06d}", records=100, size_bytes=5000 + number, digest=f"{number:032x}")
        for number in range(count)
    )


def example_offer(session: int) -> PlanOffer:
    """A plan for `example_rows`."""
    return PlanOffer(
        session=session,
        fingerprint="f" * 32,
        digest="d" * 64,
        seed=42,
        shuffle="global",
        block_records=256,
        window_blocks=64,
        batch_size=32,
        drop_last=False,
        pad=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What the two sides are told.

    Attributes:
        rows: what the daemon holds.
        knows_catalog: whether the daemon knows the catalog that is offered, or must be sent it.
        refusal: why the daemon refuses every plan; "" where it agrees.
        timeout_ns: the rank's.
        heartbeat_timeout_ns: the daemon's.
        ports: the lanes of every stream that has none reserved.
        reserved_ports: the lanes that can be reserved.
        energy: what the daemon answers to questions for energy.
        ahead_ns: of the rank's clock, the daemon's.
    """

    rows: tuple[ShardRow, ...] = example_rows(3)
    knows_catalog: bool = True
    refusal: str = ""
    timeout_ns: int = 10_000_000_000
    heartbeat_timeout_ns: int = 5_000_000_000
    ports: tuple[int, ...] = (6001, 6002)
    reserved_ports: tuple[int, ...] = (6101, 6102)
    energy: EnergyReply = field(default_factory=lambda: EnergyReply(absent="nobody records here"))
    ahead_ns: int = 0


class SessionPair:
    """A rank and a daemon that talk.

    Attributes:
        rank: the rank's machine.
        daemon: the daemon's, once a hello has arrived.
        log: every instruction that is not a message, of both sides, in the order they came.
        error: why the rank's session failed.
        ended: why the daemon's session ended.
        running: the order of the stream the daemon pushes, if any.
        catalog: the rows the daemon was sent.
        held: the lanes that the rank connected to before it has a stream.
        kept: whether the daemon keeps lanes for a stream to come.
    """

    def __init__(self, clock: ManualClock, settings: SessionSettings, *, up: Link, down: Link) -> None:
        self.rank = RankSession(peer="store1:5555", timeout_ns=settings.timeout_ns)
        self.daemon: DaemonSession | None = None
        self.log: list[RankInstruction | DaemonInstruction] = []
        self.error: Failed | None = None
        self.ended: Ended | None = None
        self.running: Open | None = None
        self.catalog: tuple[ShardRow, ...] | None = None
        self.held: tuple[int, ...] = ()
        self.kept = False
        self._clock = clock
        self._settings = settings
        self._up = up
        self._down = down

    @property
    def failed(self) -> bool:
        """Whether the rank's session failed."""
        return self.error is not None

    # ---- what the rank's user asks for ----------------------------------------------------------------------------

    def greet(self) -> None:
        """Say hello."""
        self._at_rank(self.rank.greet(example_hello(), self._clock.monotonic_ns()))

    def reserve(self, lanes: int = 2) -> None:
        """Have lanes before there is a plan."""
        self._at_rank(self.rank.reserve(lanes))

    def offer(self, catalog: Sequence[ShardRow]) -> None:
        """Propose a plan for this catalog."""
        offer = example_offer(self.rank.session)
        self._at_rank(self.rank.offer(offer, catalog, self._clock.monotonic_ns()))

    def open(self, *, epoch: int = 0, origin: int = 0, slot: int = 0) -> None:
        """Ask for a stream from a position on."""
        now_ns = self._clock.monotonic_ns()
        self._at_rank(
            self.rank.open(StreamWanted(epoch=epoch, origin=origin, slot=slot, owned=b"\x07", lanes=2), now_ns=now_ns)
        )

    def ask_sizes(self, shard: str, first: int, count: int) -> None:
        """Ask how long records are."""
        self._at_rank(self.rank.ask_sizes(shard, first, count))

    def ask_energy(self, from_ns: int, to_ns: int) -> None:
        """Ask what the daemon's node used."""
        self._at_rank(self.rank.ask_energy(from_ns, to_ns))

    def leave(self) -> None:
        """Say goodbye."""
        self._at_rank(self.rank.leave())

    def daemon_does(self, instructions: Sequence[DaemonInstruction]) -> None:
        """Carry out what the daemon's machine asked for."""
        if self.daemon is None:
            raise ValueError("there is a daemon only after a hello has arrived")
        self._at_daemon(self.daemon, instructions)

    # ---- time -----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Deliver what has arrived, and what follows from it at this moment; then both sides learn the time."""
        while True:
            up, down = self._up.arrived(), self._down.arrived()
            for data in up:
                self._daemon_hears(decode_control(data))
            for data in down:
                self._at_rank(self.rank.receive(decode_control(data), self._clock.monotonic_ns()))
            if not up and not down:
                break
        now_ns = self._clock.monotonic_ns()
        self._at_rank(self.rank.tick(now_ns))
        if self.daemon is not None:
            self._at_daemon(self.daemon, self.daemon.tick(now_ns + self._settings.ahead_ns))

    def run_until(self, end_ns: int) -> None:
        """Let time pass from one event to the next, until `end_ns`."""
        self.settle()
        while (following_ns := self._next_ns()) is not None and following_ns <= end_ns:
            # A deadline that has been reached and dealt with lies in the past; time goes on all the same.
            self._clock.advance_to(max(following_ns, self._clock.monotonic_ns() + 1))
            self.settle()
        self._clock.advance_to(end_ns)

    def _next_ns(self) -> int | None:
        ends = None
        if self.daemon is not None and self.ended is None:
            ends = self.daemon.deadline_ns() - self._settings.ahead_ns
        known = [when for when in (self._up.next_ns(), self._down.next_ns(), self.rank.deadline_ns(), ends) if when]
        return min(known) if known else None

    # ---- the shells -----------------------------------------------------------------------------------------------

    def _at_rank(self, instructions: Sequence[RankInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Send(message=message):
                    self._up.send(encode_control(message))
                case Failed():
                    self.error = instruction
                    self.log.append(instruction)
                case Listed() | Agreed() | SizesCame() | EnergyCame():
                    self.log.append(instruction)
                case StreamOpened() | LanesReserved() | LanesLost():
                    self.held = instruction.ports if isinstance(instruction, LanesReserved) else ()
                    self.log.append(instruction)

    def _daemon_hears(self, message: ControlMessage) -> None:
        if isinstance(message, Hello) and self.daemon is None:
            self.daemon = self._welcome(message)
            self._at_daemon(self.daemon, self.daemon.begin())
        elif self.daemon is None or self.ended is not None:
            self._down.send(encode_control(Refused(code="no-session", text="there is no such session here")))
        else:
            self._at_daemon(self.daemon, self.daemon.receive(message, self._daemons_ns()))

    def _daemons_ns(self) -> int:
        return self._clock.monotonic_ns() + self._settings.ahead_ns

    def _welcome(self, hello: Hello) -> DaemonSession:
        settings = self._settings
        welcome = Welcome(
            session=7,
            daemon="store1",
            software="0.1.0",
            shards=len(settings.rows),
            records=sum(row.records for row in settings.rows),
            missing=[],
            missing_count=0,
            heartbeat_timeout_ns=settings.heartbeat_timeout_ns,
            send_buffer_bytes=4 << 20,
            max_lanes=64,
        )
        return DaemonSession(
            hello=hello,
            welcome=welcome,
            rows=settings.rows,
            heartbeat_timeout_ns=settings.heartbeat_timeout_ns,
            now_ns=self._daemons_ns(),
        )

    def _at_daemon(self, daemon: DaemonSession, instructions: Sequence[DaemonInstruction]) -> None:
        for instruction in instructions:
            if not isinstance(instruction, Send):
                self.log.append(instruction)
            match instruction:
                case Send(message=message):
                    self._down.send(encode_control(message))
                case Judge(rows=rows):
                    self._at_daemon(daemon, self._judge(daemon, rows))
                case LookUpSizes():
                    self._down.send(encode_control(self._sizes(instruction)))
                case LookUpEnergy():
                    self._at_daemon(daemon, daemon.tell_energy(self._settings.energy))
                case ReserveLanes():
                    self.kept = bool(self._settings.reserved_ports)
                    self._at_daemon(daemon, daemon.reserved(self._settings.reserved_ports, _RESERVED_SECRET))
                case FreeLanes():
                    self.kept = False
                case StartStream(order=order):
                    if self.running is not None:
                        raise RemoteProtocolError("a stream must be stopped before another is started")
                    self.running = order
                    lanes = (self._settings.ports, b"")
                    if self.kept:
                        lanes, self.kept = (self._settings.reserved_ports, _RESERVED_SECRET), False
                    self._at_daemon(daemon, daemon.opened(order.stream, *lanes))
                case StopStream():
                    self.running = None
                case Ended():
                    self.ended = instruction

    def _sizes(self, asked: LookUpSizes) -> SizesReply:
        """As if the records of a shard were of one length."""
        held = next((row for row in self._settings.rows if row.name == asked.shard and asked.first < row.records), None)
        if held is None:
            return SizesReply(shard=asked.shard, first=asked.first, offset=0, sizes=b"")
        size = held.size_bytes // held.records
        count = min(asked.count, RECORDS_PER_SIZES, held.records - asked.first)
        sizes = size.to_bytes(4, "little") * count
        return SizesReply(shard=asked.shard, first=asked.first, offset=size * asked.first, sizes=sizes)

    def _judge(self, daemon: DaemonSession, rows: tuple[ShardRow, ...] | None) -> list[DaemonInstruction]:
        if self._settings.refusal:
            return daemon.refuse("plan-refused", self._settings.refusal)
        if rows is not None:
            self.catalog = rows
        return daemon.agree() if rows is not None or self._settings.knows_catalog else daemon.ask_catalog()
