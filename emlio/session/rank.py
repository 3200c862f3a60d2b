"""The training process's side of a session with one daemon.

Covers: the conversation, its deadlines, heartbeats and the round trip measured from them. Does not cover: sockets, the plan,
data messages. Every method returns what the shell must do; nothing here waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from emlio.energy.clock_log import ClockLog
from emlio.errors import EmlioError, LocalProtocolError, PeerLostError, RefusedError, RemoteProtocolError
from emlio.session.energy_asked import EnergyAsked
from emlio.session.faults import error_of
from emlio.session.instructions import Agreed, Failed, Listed, RankInstruction, Send, StreamOpened
from emlio.session.pings import Pings
from emlio.session.reservation import ReservedLanes
from emlio.session.sizes_asked import SizesAsked
from emlio.session.states import RANK_MOVES, RankState, next_state
from emlio.session.stream_wanted import StreamWanted
from emlio.units import format_duration
from emlio.wire.control import (
    CatalogPart,
    ControlMessage,
    EnergyReply,
    EnergyRequest,
    Fault,
    Goodbye,
    Hello,
    Opened,
    PlanOffer,
    PlanReply,
    Pong,
    Refused,
    Reserved,
    ShardRow,
    ShardsReply,
    ShardsRequest,
    SizesReply,
    SizesRequest,
    Stop,
    Welcome,
)
from emlio.wire.limits import ROWS_PER_PART
from emlio.wire.protection import CLEAR, check_chosen, check_secret

__all__ = ["PeerReport", "RankSession"]

_HEARTBEATS_PER_TIMEOUT = 5
"""A daemon forgets a rank it has not heard for its heartbeat timeout; five pings in it leave room for lost time."""

_LATE_PART = 4
"""Of the timeout: if the clock is looked at so much too late, this process or its thread had no turn."""

_PROBES = 3
"""Pings sent at once after the welcome, so that the round trip is the best of several and not one unlucky figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerReport:
    """What the daemon last said about the stream."""

    sent_bytes: int = 0
    blocked_ns: int = 0
    starved_ns: int = 0


class RankSession:
    """One rank's conversation with one daemon; not thread-safe, owned by the receive thread.

    Attributes:
        report: what the daemon last said about the stream.
        in_vain: it was given up for silence while a stream was ordered of it.
        dismissed: the daemon said goodbye; as much as its last report says may still be on its way.
        clocks: what its pongs tell of its clock. It outlives the session: the next one goes on with it.
    """

    def __init__(self, *, peer: str, timeout_ns: int, clocks: ClockLog | None = None) -> None:
        self.peer = peer
        self.state = RankState.NEW
        self.session = 0
        self.welcome: Welcome | None = None
        self.round_trip_ns: int | None = None
        self.report = PeerReport()
        self.dismissed = False
        self.in_vain = False
        self.stream = 0
        self.clocks = clocks if clocks is not None else ClockLog()
        self._timeout_ns = timeout_ns
        self._heard_ns = 0
        self._next_ping_ns: int | None = None
        self._ping_every_ns = timeout_ns // _HEARTBEATS_PER_TIMEOUT
        self._asked_ns: int | None = None
        self._pings = Pings(self.clocks)
        self._rows: list[ShardRow] = []
        self._protections: tuple[str, ...] = ()
        self._offer: PlanOffer | None = None
        self._catalog_sent = False
        self._catalog: Sequence[ShardRow] = ()
        self._sizes = SizesAsked()
        self._energy = EnergyAsked()
        self._lanes = ReservedLanes()

    # ---- what the shell may ask for -------------------------------------------------------------------------------

    def greet(self, hello: Hello, now_ns: int) -> list[RankInstruction]:
        """Begin."""
        self._move("greet", LocalProtocolError)
        self._protections = hello.protections
        self._heard_ns = now_ns
        return [self._ask(hello, now_ns)]

    def reserve(self, lanes: int) -> list[RankInstruction]:
        """Have lanes bound while shards and plan are spoken of; `LanesReserved` brings them, if there are any."""
        self._move("reserve", LocalProtocolError)
        return [self._lanes.ask(lanes)]

    @property
    def reserved_lanes(self) -> int:
        """How many are connected already: an order that asks for as many gets them. 0 where there are none for the next one."""
        return self._lanes.count

    def offer(self, offer: PlanOffer, catalog: Sequence[ShardRow], now_ns: int) -> list[RankInstruction]:
        """Propose the plan; `catalog` is sent only if the daemon does not know it."""
        self._move("offer", LocalProtocolError)
        self._offer, self._catalog = offer, catalog
        return [self._ask(offer, now_ns)]

    def open(self, wanted: StreamWanted, now_ns: int) -> list[RankInstruction]:
        """Ask for this stream; replaces the one before."""
        self._move("open", LocalProtocolError)
        self.stream += 1
        self.report = PeerReport()
        order = wanted.order(self.session, self.stream)
        return [*self._lanes.ordered(self.stream), self._ask(order, now_ns)]

    def stop(self) -> list[RankInstruction]:
        """Ask for nothing any more; the conversation goes on. Does nothing where there is no stream."""
        if self.state not in (RankState.OPENING, RankState.STREAMING):
            return []
        self._move("stop", LocalProtocolError)
        self._asked_ns = None
        self.report = PeerReport()
        return [*self._lanes.give_up(), Send(message=Stop(session=self.session))]

    def ask_sizes(self, shard: str, first: int, count: int) -> list[RankInstruction]:
        """Ask how long `count` records of a shard are, from record `first` on; `SizesCame` brings the answer.

        Any number of questions may be asked at once; those that would be too many on the way wait here. An answer may be
        cut short, see `SizesReply`. Whoever asks watches its own deadline: no answer is no reason to give the daemon up.

        Raises:
            LocalProtocolError: there is no session, or the question is none.
        """
        self._move("asksizes", LocalProtocolError)
        if first < 0 or count < 1:
            raise LocalProtocolError(
                f"sizes must be asked for from record 0 on and for at least 1, got {count} from record {first} of {shard}"
            )
        return self._sizes.ask(SizesRequest(session=self.session, shard=shard, first=first, count=count))

    @property
    def asks_energy(self) -> bool:
        """Whether a question for energy is open; the next one must wait."""
        return self._energy.is_open

    def ask_energy(self, from_ns: int, to_ns: int, *, recording: int = 0, first: int = 0) -> list[RankInstruction]:
        """Ask what the daemon's node used, by its clock; `EnergyCame` brings the answer or a part of it, see `EnergyRequest`.

        Raises:
            LocalProtocolError: there is no session, the question is none, or another is open.
        """
        self._move("askenergy", LocalProtocolError)
        question = EnergyRequest(session=self.session, from_ns=from_ns, to_ns=to_ns, recording=recording, first=first)
        return [self._energy.ask(question)]

    def leave(self) -> list[RankInstruction]:
        """End the session; harmless in every state."""
        greeted = self.session and self.state is not RankState.OVER
        self.state = RankState.OVER
        return [Send(message=Goodbye(session=self.session))] if greeted else []

    def expect_within(self, timeout_ns: int) -> None:
        """From now on the daemon must say something within this time."""
        self._timeout_ns = timeout_ns
        self._ping_every_ns = max(min(self._ping_every_ns, timeout_ns // _HEARTBEATS_PER_TIMEOUT), 1_000_000)
        if self._next_ping_ns is not None:
            self._next_ping_ns = min(self._next_ping_ns, self._heard_ns + self._ping_every_ns)

    # ---- what happens ---------------------------------------------------------------------------------------------

    def receive(self, message: ControlMessage, now_ns: int) -> list[RankInstruction]:
        """The daemon said this."""
        if self.state in (RankState.OVER, RankState.NEW):
            return []
        self._heard_ns = now_ns
        try:
            return self._handle(message, now_ns)
        except EmlioError as error:
            return self._fail(error)

    def cut_off(self) -> list[RankInstruction]:
        """The connection ended, and nobody said goodbye."""
        if self.state in (RankState.OVER, RankState.NEW):
            return []
        return self._fail(
            PeerLostError(
                f"the connection to the daemon at {self.peer} must last as long as the session, it ended (state: "
                f"{self.state.value}); does emlio-daemon still run there?"
            )
        )

    def tick(self, now_ns: int) -> list[RankInstruction]:
        """Time has passed: ping, or give the daemon up."""
        due_ns = self.deadline_ns()
        if due_ns is None:
            return []
        late_ns = now_ns - due_ns
        if late_ns > self._timeout_ns // _LATE_PART:
            # This process stood still: what it did not hear meanwhile is not the daemon's fault.
            self._heard_ns += late_ns
            self._asked_ns = None if self._asked_ns is None else self._asked_ns + late_ns
        waited = now_ns - self._since_ns()
        if waited >= self._timeout_ns:
            self.in_vain = self.state in (RankState.OPENING, RankState.STREAMING)
            what, none = ("say anything", "nothing") if self._asked_ns is None else ("answer", "no answer")
            return self._fail(
                PeerLostError(
                    f"the daemon at {self.peer} must {what} within {format_duration(self._timeout_ns)}, "
                    f"{none} came for {format_duration(waited)} (state: {self.state.value}); "
                    "is emlio-daemon running there, and is the port reachable?"
                )
            )
        lost = self._lanes.tick(now_ns)
        if self._next_ping_ns is not None and now_ns >= self._next_ping_ns:
            return [*lost, self._ping(now_ns)]
        return lost

    def deadline_ns(self) -> int | None:
        """When `tick` must be called at the latest."""
        if self.state in (RankState.OVER, RankState.NEW):
            return None
        times = (self._since_ns() + self._timeout_ns, self._next_ping_ns, self._lanes.deadline_ns())
        return min(at for at in times if at is not None)

    def silence_ns(self, now_ns: int) -> int:
        """How long the daemon has said nothing."""
        return now_ns - self._heard_ns

    def _since_ns(self) -> int:
        """What the timeout counts from: the last word, or a question that is open since before it."""
        return self._heard_ns if self._asked_ns is None else min(self._heard_ns, self._asked_ns)

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _handle(self, message: ControlMessage, now_ns: int) -> list[RankInstruction]:
        match message:
            case Welcome():
                return self._on_welcome(message, now_ns)
            case ShardsReply():
                return self._on_shards(message, now_ns)
            case SizesReply():
                return self._sizes.answered(message)
            case EnergyReply():
                return [self._energy.answered(message)]
            case PlanReply():
                return self._on_plan_reply(message, now_ns)
            case Reserved():
                return self._on_reserved(message, now_ns)
            case Opened():
                if self.state is RankState.READY and 1 <= message.stream <= self.stream:
                    return []  # the answer to an order that was taken back
                self._move("opened", RemoteProtocolError)
                if message.stream != self.stream:
                    return []  # the answer to an order that a later one replaced
                self._answered(now_ns)
                self._move("current", RemoteProtocolError)
                self._check_secret(message.secret)
                ports, reserved = tuple(message.ports), self._lanes.serve(message)
                return [StreamOpened(stream=message.stream, ports=ports, secret=message.secret, reserved=reserved)]
            case Pong():
                round_trip_ns = self._pings.answered(message, now_ns)
                if round_trip_ns is not None:
                    self._measure(round_trip_ns)
                # While it opens a stream the daemon may still speak of the one before.
                if self.state is RankState.STREAMING:
                    self.report = PeerReport(
                        sent_bytes=message.sent_bytes, blocked_ns=message.blocked_ns, starved_ns=message.starved_ns
                    )
                return []
            case Fault():
                return self._fail(error_of(message, self.peer)) if message.stream in (0, self.stream) else []
            case Refused():
                return self._fail(RefusedError(f"the daemon at {self.peer} refuses: {message.text}", code=message.code))
            case Goodbye():
                self.dismissed = True
                reason = message.reason or "no reason given"
                return self._fail(PeerLostError(f"the daemon at {self.peer} ended the session: {reason}"))
            case _:
                raise RemoteProtocolError(f"a daemon must not send {type(message).__name__}")

    def _on_welcome(self, message: Welcome, now_ns: int) -> list[RankInstruction]:
        self._move("welcome", RemoteProtocolError)
        check_chosen(message.protection, self._protections)
        self._answered(now_ns)
        self.session, self.welcome = message.session, message
        self._ping_every_ns = max(
            min(self._timeout_ns, message.heartbeat_timeout_ns) // _HEARTBEATS_PER_TIMEOUT, 1_000_000
        )
        pings: list[RankInstruction] = [self._ping(now_ns) for _ in range(_PROBES)]
        if message.rows:
            # The pings go first, so that clocks were compared by the time there is a plan.
            return [*pings, *self._on_shards(ShardsReply(first=0, total=message.shards, rows=message.rows), now_ns)]
        return [self._ask(ShardsRequest(session=self.session, first=0), now_ns), *pings]

    def _on_shards(self, message: ShardsReply, now_ns: int) -> list[RankInstruction]:
        self._move("shardsreply", RemoteProtocolError)
        self._answered(now_ns)
        if message.first != len(self._rows) or not message.rows:
            raise RemoteProtocolError(
                f"a list of shards must go on at row {len(self._rows)} and hold rows, "
                f"got row {message.first} with {len(message.rows)}"
            )
        self._rows.extend(message.rows)
        total = self.welcome.shards if self.welcome else 0
        if message.total != total or len(self._rows) > total:
            raise RemoteProtocolError(
                f"a list of shards must have the {total} rows of the welcome in total, "
                f"got a total of {message.total} and {len(self._rows)} rows so far"
            )
        if len(self._rows) < total:
            return [self._ask(ShardsRequest(session=self.session, first=len(self._rows)), now_ns)]
        self._move("listed", RemoteProtocolError)
        missing = self.welcome.missing if self.welcome else []
        return [Listed(rows=tuple(self._rows), missing=tuple(missing))]

    def _on_plan_reply(self, message: PlanReply, now_ns: int) -> list[RankInstruction]:
        self._move("planreply", RemoteProtocolError)
        self._answered(now_ns)
        if not message.need_catalog:
            self._move("agreed", RemoteProtocolError)
            return [Agreed()]
        if self._offer is None:
            raise RemoteProtocolError("a catalog must not be asked for before a plan is offered")
        if self._catalog_sent:
            raise RemoteProtocolError("a catalog must be asked for once in a session, got the question again")
        self._catalog_sent = True
        rows, fingerprint = self._catalog, self._offer.fingerprint
        self._asked_ns = now_ns
        return [
            Send(
                message=CatalogPart(
                    session=self.session,
                    fingerprint=fingerprint,
                    first=first,
                    total=len(rows),
                    rows=list(rows[first : first + ROWS_PER_PART]),
                )
            )
            for first in range(0, len(rows), ROWS_PER_PART)
        ]

    def _on_reserved(self, message: Reserved, now_ns: int) -> list[RankInstruction]:
        self._move("reserved", RemoteProtocolError)
        if message.session != self.session:
            raise RemoteProtocolError(
                f"lanes must be reserved for session {self.session}, got some for {message.session}"
            )
        if message.ports:
            self._check_secret(message.secret)
        return self._lanes.answered(message, now_ns)

    def _check_secret(self, secret: bytes) -> None:
        check_secret(self.welcome.protection if self.welcome is not None else CLEAR, secret)

    def _ask(self, message: ControlMessage, now_ns: int) -> Send:
        self._asked_ns = now_ns
        return Send(message=message)

    def _answered(self, now_ns: int) -> None:
        if self._asked_ns is not None:
            self._measure(now_ns - self._asked_ns)
        self._asked_ns = None

    def _measure(self, round_trip_ns: int) -> None:
        best = self.round_trip_ns
        self.round_trip_ns = round_trip_ns if best is None else min(best, round_trip_ns)

    def _ping(self, now_ns: int) -> Send:
        self._next_ping_ns = now_ns + self._ping_every_ns
        return Send(message=self._pings.next(self.session, now_ns))

    def _fail(self, error: EmlioError) -> list[RankInstruction]:
        instructions = self.leave()
        return [*instructions, Failed(error=error)]

    def _move(self, move: str, blame: type[LocalProtocolError] | type[RemoteProtocolError]) -> None:
        self.state = next_state(RANK_MOVES, self.state, move, blame)
