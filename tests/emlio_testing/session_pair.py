"""The two sides of a session joined by two links, without sockets, threads or files.

Instructions are carried out as in the loader and the daemon, with prepared answers in place of
plans and lanes. Does not cover: data messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from emlio.errors import RemoteProtocolError
from emlio.session.contents import pack
from emlio.session.daemon import DaemonSession
from emlio.session.instructions import (
    Agreed,
    AnswerCame,
    DaemonInstruction,
    Ended,
    Failed,
    Judge,
    Listed,
    LookUp,
    Matched,
    RankInstruction,
    Send,
    StartStream,
    StopStream,
    StreamOpened,
)
from emlio.session.rank import RankSession
from emlio.wire.control import (
    ControlMessage,
    Hello,
    Open,
    PlanOffer,
    Refused,
    ShardRow,
    Welcome,
    decode_control,
    encode_control,
)
from emlio.wire.credit import Credit
from emlio.wire.limits import CONTENT_PART_BYTES, MATCH_DIGEST_BYTES, RECORDS_PER_SIZES
from emlio.wire.questions import (
    Absent,
    Answer,
    AskEnergy,
    AskMatches,
    AskRanges,
    AskRecords,
    AskSizes,
    AskTree,
    Energy,
    Matches,
    Sizes,
    Subject,
    Told,
)
from emlio_testing.clock import ManualClock
from emlio_testing.link import Link

__all__ = ["SessionPair", "SessionSettings", "example_hello", "example_offer", "example_rows", "example_wanted"]

_SECRET = bytes(range(32))
_NO_ENERGY = Absent(text="nobody records here")


def example_hello() -> Hello:
    """Return the hello of a rank that is alone."""
    return Hello(
        job="job",
        client="client",
        rank=0,
        world_size=1,
        dataset="numbers",
        host="gpu1",
        pid=4711,
        software="0.1.0",
        lane_secret=_SECRET,
    )


def example_rows(count: int) -> tuple[ShardRow, ...]:
    """Return a list of shards."""
    return tuple(
        ShardRow(name=f"train-{number:06d}", records=100, size_bytes=5000 + number, digest=f"{number:032x}")
        for number in range(count)
    )


def example_wanted(
    session: int = 0,
    stream: int = 0,
    *,
    epoch: int = 0,
    origin: int = 0,
    slot: int = 0,
    owned: bytes = b"\x07",
    lanes: int = 2,
) -> Open:
    """Return a request for a stream of three shards over two lanes.

    It has credit for one message.
    """
    credit = Credit(read_bytes=0, stream=stream, allowed_bytes=4 << 20, epoch=epoch + 1)
    return Open(
        session=session, stream=stream, epoch=epoch, origin=origin, slot=slot, owned=owned, lanes=lanes, credit=credit
    )


def example_offer(session: int) -> PlanOffer:
    """Return the offer of a plan for `example_rows`."""
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
    """The configuration of the two sides.

    Attributes:
        rows: the daemon's shards.
        knows_catalog: whether the daemon knows the offered catalog; otherwise it must be sent.
        refusal: the reason why the daemon refuses every plan; "" if it agrees.
        timeout_ns: the rank's timeout.
        heartbeat_timeout_ns: the daemon's timeout.
        lanes: the number of lanes of every stream.
        energy: the daemon's answer to questions about energy.
        ahead_ns: how far the daemon's clock is ahead of the rank's.
    """

    rows: tuple[ShardRow, ...] = example_rows(3)
    knows_catalog: bool = True
    refusal: str = ""
    timeout_ns: int = 10_000_000_000
    heartbeat_timeout_ns: int = 5_000_000_000
    lanes: int = 2
    energy: Energy | Absent = _NO_ENERGY
    ahead_ns: int = 0


class SessionPair:
    """A rank and a daemon that exchange messages.

    Attributes:
        rank: the rank's machine.
        daemon: the daemon's machine, once a hello has arrived.
        log: every instruction of both sides that is not a message, in order.
        error: the failure of the rank's session.
        ended: the end of the daemon's session.
        running: the order of the stream that the daemon sends, if any.
        catalog: the rows that were sent to the daemon.
    """

    def __init__(self, clock: ManualClock, settings: SessionSettings, *, up: Link, down: Link) -> None:
        self.rank = RankSession(peer="store1:5555", timeout_ns=settings.timeout_ns)
        self.daemon: DaemonSession | None = None
        self.log: list[RankInstruction | DaemonInstruction] = []
        self.error: Failed | None = None
        self.ended: Ended | None = None
        self.running: Open | None = None
        self.catalog: tuple[ShardRow, ...] | None = None
        self._clock = clock
        self._settings = settings
        self._up = up
        self._down = down

    @property
    def failed(self) -> bool:
        """True if the rank's session failed."""
        return self.error is not None

    # ---- requests of the rank's user --------------------------------------------------------------------------------

    def greet(self) -> None:
        """Say hello."""
        self._at_rank(self.rank.greet(example_hello(), self._clock.monotonic_ns()))

    def offer(self, catalog: Sequence[ShardRow], *, begins: bool = False) -> None:
        """Offer a plan for this catalog.

        With `begins`, order its first stream in the same message.
        """
        offer, first = example_offer(self.rank.session), example_wanted() if begins else None
        self._at_rank(self.rank.offer(offer, catalog, self._clock.monotonic_ns(), first))

    def open(self, *, epoch: int = 0, origin: int = 0, slot: int = 0) -> None:
        """Order a stream from a position on."""
        wanted = example_wanted(epoch=epoch, origin=origin, slot=slot)
        self._at_rank(self.rank.open(wanted, now_ns=self._clock.monotonic_ns()))

    def ask(self, about: Subject) -> None:
        """Ask a question."""
        self._at_rank([Send(message=self.rank.ask(about))])

    def leave(self) -> None:
        """Say goodbye."""
        self._at_rank(self.rank.leave())

    def daemon_does(self, instructions: Sequence[DaemonInstruction]) -> None:
        """Carry out the instructions of the daemon's machine."""
        if self.daemon is None:
            raise ValueError("there is a daemon only after a hello has arrived")
        self._at_daemon(self.daemon, instructions)

    # ---- time -----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Deliver all messages that are due, and what follows from them.

        Then tell both sides the time.
        """
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
        """Advance the clock from one event to the next, until `end_ns`."""
        self.settle()
        while (following_ns := self._next_ns()) is not None and following_ns <= end_ns:
            # A deadline that was reached and handled lies in the past; time advances all the same.
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
                case Listed() | Matched() | Agreed() | StreamOpened() | AnswerCame():
                    self.log.append(instruction)

    def _daemon_hears(self, message: ControlMessage) -> None:
        if isinstance(message, Hello) and self.daemon is None:
            self.daemon = self._welcome(message)
            self._at_daemon(self.daemon, self.daemon.begin())
        elif self.daemon is None or self.ended is not None:
            self._down.send(encode_control(Refused(code="no-session", text="no session on this connection")))
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
                case LookUp(question=question):
                    assert daemon.answered(question.number)
                    answer = Answer(number=question.number, told=self._told(question.about))
                    self._down.send(encode_control(answer))
                case StartStream(order=order):
                    if self.running is not None:
                        raise RemoteProtocolError("a stream must be stopped before another is started")
                    self.running = order
                    self._at_daemon(daemon, daemon.opened(order.stream, self._settings.lanes))
                case StopStream():
                    self.running = None
                case Ended():
                    self.ended = instruction

    def _told(self, about: Subject) -> Told:
        rows = self._settings.rows
        match about:
            case AskSizes():
                return self._sizes(about)
            case AskMatches():
                total = (
                    MATCH_DIGEST_BYTES * len(rows)
                    if about.digests is True
                    else -(-sum(row.records for row in rows) // 8)
                )
                size = min(CONTENT_PART_BYTES, total - about.first)
                return Matches(first=about.first, size=size, total=total, data=pack(bytes(size)))
            case AskRecords() | AskTree() | AskRanges():
                return Absent(code="dataset", text="no records or files are kept here")
            case AskEnergy():
                return self._settings.energy

    def _sizes(self, about: AskSizes) -> Sizes:
        """Return an answer as if all records of a shard had the same size."""
        held = next((row for row in self._settings.rows if row.name == about.shard and about.first < row.records), None)
        if held is None:
            return Sizes(offset=0, sizes=b"")
        size = held.size_bytes // held.records
        count = min(about.count, RECORDS_PER_SIZES, held.records - about.first)
        return Sizes(offset=size * about.first, sizes=size.to_bytes(4, "little") * count)

    def _judge(self, daemon: DaemonSession, rows: tuple[ShardRow, ...] | None) -> list[DaemonInstruction]:
        if self._settings.refusal:
            return daemon.refuse("plan-refused", self._settings.refusal)
        if rows is not None:
            self.catalog = rows
        return daemon.agree() if rows is not None or self._settings.knows_catalog else daemon.ask_catalog()
