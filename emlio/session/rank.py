"""The training process's side of a session with one daemon.

Every method returns the instructions that the caller must carry out. Nothing here waits.

Covers: the conversation, its deadlines, heartbeats, the round trip measured from them. Does not
cover: sockets, the plan, data messages.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from emlio.clocks.log import ClockLog
from emlio.errors import EmlioError, LocalProtocolError, PeerLostError, RefusedError, RemoteProtocolError
from emlio.session.contents import cut_content
from emlio.session.faults import error_of
from emlio.session.instructions import Agreed, Failed, Listed, Matched, RankInstruction, Send, StreamOpened
from emlio.session.pings import Pings
from emlio.session.questions import MatchesAsked, QuestionsAsked
from emlio.session.states import RANK_MOVES, RankState, next_state
from emlio.units import format_duration
from emlio.wire.control import (
    Answer,
    CatalogPart,
    ControlMessage,
    Fault,
    Goodbye,
    Hello,
    Open,
    Opened,
    Place,
    PlanOffer,
    PlanReply,
    Pong,
    Question,
    Refused,
    ShardRow,
    ShardsReply,
    ShardsRequest,
    Stop,
    Welcome,
)
from emlio.wire.limits import ROWS_PER_PART
from emlio.wire.protection import check_chosen
from emlio.wire.questions import AskMatches, Matches, Subject
from emlio.wire.status import UserWaits
from emlio.wire.tuning import StreamTuning, StreamWork

__all__ = ["PeerReport", "RankSession"]

_HEARTBEATS_PER_TIMEOUT = 5
"""Pings per timeout. A daemon drops a silent rank after its heartbeat timeout; five leave room for
delays."""

_LATE_PART = 4
"""Fraction of the timeout. If `tick` comes later than this, this process or thread did not get to
run."""

_PROBES = 3
"""Pings sent at once after the welcome, so that the round trip is the best of several
measurements."""


class PeerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's last report on the stream."""

    sent_bytes: int = 0
    blocked_ns: int = 0
    starved_ns: int = 0
    withheld_ns: int = 0
    work: StreamWork | None = None


class RankSession:
    """One rank's session with one daemon. Not thread-safe; owned by the receive thread.

    Attributes:
        report: the daemon's last report on the stream.
        in_vain: the daemon was given up for silence while a stream was ordered from it.
        dismissed: the daemon said goodbye; bytes up to its last report may still be in flight.
        stream: the number of the stream ordered last.
        secret: the secret from which the lanes' passes and the streams' keys are derived.
        clocks: the exchanges with the daemon's clock. They outlive the session: the next one
            continues them.
        pings: also know how far the daemon lets the user go.
    """

    def __init__(
        self,
        *,
        peer: str,
        timeout_ns: int,
        clocks: ClockLog | None = None,
        place: Callable[[], Place | msgspec.UnsetType] = lambda: msgspec.UNSET,
        waits: Callable[[], UserWaits | msgspec.UnsetType] = lambda: msgspec.UNSET,
    ) -> None:
        """Begin before the greeting; `place` returns where the user is, `waits` its times so far."""
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
        self._sent_ns: int | None = None  # when the question left that is answered next
        self.pings = Pings(self.clocks, place, waits)
        self.secret = b""
        self._rows: list[ShardRow] = []
        self._protections: tuple[str, ...] = ()
        self._offer: PlanOffer | None = None
        self._catalog_sent = False
        self._catalog: Sequence[ShardRow] = ()
        self._contents: dict[str, Callable[[], bytes]] = {}
        self._questions = QuestionsAsked()
        self.matches = MatchesAsked()

    # ---- requests -------------------------------------------------------------------------------------------------

    def greet(self, hello: Hello, now_ns: int) -> list[RankInstruction]:
        """Start the session."""
        self._move("greet", LocalProtocolError)
        self._protections, self.secret = hello.protections, hello.lane_secret
        self._heard_ns = now_ns
        return [self._ask(hello, now_ns)]

    def offer(
        self,
        offer: PlanOffer,
        catalog: Sequence[ShardRow],
        now_ns: int,
        first: Open | None = None,
        contents: Mapping[str, Callable[[], bytes]] = MappingProxyType({}),
    ) -> list[RankInstruction]:
        """Propose the plan, and `first` as the stream to start on agreement.

        `catalog`, and the `contents` that the offer's sampling names by digest, are sent only if the daemon does not
        know them.
        """
        self._move("offer", LocalProtocolError)
        if first is not None:
            offer = msgspec.structs.replace(offer, first=self._order(first))
        self._offer, self._catalog, self._contents = offer, catalog, dict(contents)
        return [self._ask(offer, now_ns)]

    def open(self, wanted: Open, now_ns: int) -> list[RankInstruction]:
        """Order this stream, in place of the previous one; its numbers of session and stream are set here."""
        self._move("open", LocalProtocolError)
        return [self._ask(self._order(wanted), now_ns)]

    def _order(self, wanted: Open) -> Open:
        self.stream += 1
        self.report = PeerReport()
        credit = msgspec.structs.replace(wanted.credit, stream=self.stream)
        tuning = self.pings.tuning or msgspec.UNSET
        return msgspec.structs.replace(wanted, session=self.session, stream=self.stream, credit=credit, tuning=tuning)

    def stop(self) -> list[RankInstruction]:
        """Order no stream any more; the session goes on. Does nothing if there is no stream."""
        if self.state not in (RankState.OPENING, RankState.STREAMING):
            return []
        self._move("stop", LocalProtocolError)
        self._asked_ns = self._sent_ns = None
        self.report = PeerReport()
        return [Send(message=Stop(session=self.session))]

    def takes_question(self, kind: type[Subject]) -> bool:
        """Return whether another question of this kind may be asked now."""
        return (self.state, "ask") in RANK_MOVES and self._questions.takes_more(kind)

    def ask(self, about: Subject) -> Question:
        """Return the message of a question, to be sent.

        `AnswerCame` brings the answer, perhaps only a part, see emlio.wire.questions. The caller must
        watch its own deadline: a missing answer is no reason to give the daemon up.

        Raises:
            LocalProtocolError: there is no session, too many questions are open, or this one is not valid.
        """
        self._move("ask", LocalProtocolError)
        return self._questions.ask(self.session, about)

    def ask_matches(self, predicate: str, *, digests: bool = False) -> list[RankInstruction]:
        """Ask for which of its records a predicate holds. `Matched` brings the answer, perhaps after minutes.

        Raises:
            LocalProtocolError: the session is not at that point.
        """
        self._move("askmatches", LocalProtocolError)
        about = self.matches.ask(predicate, self._rows, digests=digests)
        return [Matched(told=b"")] if about is None else [Send(message=self.ask(about))]

    def ask_report(self, now_ns: int) -> list[RankInstruction]:
        """Ask for a report on the stream, beside those that heartbeats bring; nothing without a stream."""
        return [self._ping(now_ns)] if self.state is RankState.STREAMING else []

    def tune(self, tuning: StreamTuning, now_ns: int) -> list[RankInstruction]:
        """Have the daemon serve the stream so from now on, and later ones; and tell of its work with each report."""
        self.pings.tuning = tuning
        return self.ask_report(now_ns)

    def tell_place(self, now_ns: int) -> list[RankInstruction]:
        """Tell where the user is, beside the pings that heartbeats bring; nothing before the plan is agreed."""
        if self.state not in (RankState.READY, RankState.OPENING, RankState.STREAMING):
            return []
        told = self._ping(now_ns)
        self.pings.tell_place()
        return [told]

    def leave(self) -> list[RankInstruction]:
        """End the session; allowed in every state."""
        greeted = self.session and self.state is not RankState.OVER
        self.state = RankState.OVER
        return [Send(message=Goodbye(session=self.session, place=self.pings.place()))] if greeted else []

    def expect_within(self, timeout_ns: int) -> None:
        """Change the timeout: the daemon must say something within this time."""
        self._timeout_ns = timeout_ns
        self._ping_every_ns = max(min(self._ping_every_ns, timeout_ns // _HEARTBEATS_PER_TIMEOUT), 1_000_000)
        if self._next_ping_ns is not None:
            self._next_ping_ns = min(self._next_ping_ns, self._heard_ns + self._ping_every_ns)

    # ---- events ---------------------------------------------------------------------------------------------------

    def receive(self, message: ControlMessage, now_ns: int) -> list[RankInstruction]:
        """Handle a message from the daemon."""
        if self.state in (RankState.OVER, RankState.NEW):
            return []
        self._heard_ns = now_ns
        try:
            return self._handle(message, now_ns)
        except EmlioError as error:
            return self._fail(error)

    def cut_off(self) -> list[RankInstruction]:
        """Handle the end of the connection without a goodbye."""
        if self.state in (RankState.OVER, RankState.NEW):
            return []
        return self._fail(
            PeerLostError(
                f"the connection to the daemon at {self.peer} was lost (state: {self.state.value}). Check that "
                "emlio-daemon is still running there"
            )
        )

    def tick(self, now_ns: int) -> list[RankInstruction]:
        """Send a ping if one is due, or give the daemon up after the timeout."""
        due_ns = self.deadline_ns()
        if due_ns is None:
            return []
        late_ns = now_ns - due_ns
        if late_ns > self._timeout_ns // _LATE_PART:
            # This process stood still: messages that it did not read meanwhile are not the daemon's
            # fault.
            self._heard_ns += late_ns
            self._asked_ns = None if self._asked_ns is None else self._asked_ns + late_ns
        waited = now_ns - self._since_ns()
        if waited >= self._timeout_ns:
            self.in_vain = self.state in (RankState.OPENING, RankState.STREAMING)
            what, none = ("send something", "nothing") if self._asked_ns is None else ("answer", "no answer")
            return self._fail(
                PeerLostError(
                    f"the daemon at {self.peer} must {what} within {format_duration(self._timeout_ns)}, {none} came "
                    f"for {format_duration(waited)} (state: {self.state.value}). Check that emlio-daemon is running "
                    "there and that its port is reachable"
                )
            )
        if self._next_ping_ns is not None and now_ns >= self._next_ping_ns:
            return [self._ping(now_ns)]
        return []

    def deadline_ns(self) -> int | None:
        """The latest time at which `tick` must be called."""
        if self.state in (RankState.OVER, RankState.NEW):
            return None
        times = (self._since_ns() + self._timeout_ns, self._next_ping_ns)
        return min(at for at in times if at is not None)

    def silence_ns(self, now_ns: int) -> int:
        """Return how long the daemon has been silent."""
        return now_ns - self._heard_ns

    def _since_ns(self) -> int:
        """The start of the timeout: the last message, or an older question that is still open."""
        return self._heard_ns if self._asked_ns is None else min(self._heard_ns, self._asked_ns)

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _handle(self, message: ControlMessage, now_ns: int) -> list[RankInstruction]:
        match message:
            case Welcome():
                return self._on_welcome(message, now_ns)
            case ShardsReply():
                return self._on_shards(message, now_ns)
            case Answer():
                return [self._on_answer(message)]
            case PlanReply():
                return self._on_plan_reply(message, now_ns)
            case Opened():
                if self.state is RankState.READY and 1 <= message.stream <= self.stream:
                    return []  # the answer to an order that was withdrawn
                self._move("opened", RemoteProtocolError)
                if message.stream != self.stream:
                    return []  # the answer to an order that a later one replaced
                self._answered(now_ns)
                self._move("current", RemoteProtocolError)
                return [StreamOpened(stream=message.stream, lanes=message.lanes, lane_bytes=message.lane_bytes)]
            case Pong():
                round_trip_ns = self.pings.answered(message, now_ns)
                if round_trip_ns is not None:
                    self._measure(round_trip_ns)
                # While opening a stream the daemon may still report on the previous one.
                if self.state is RankState.STREAMING:
                    self.report = PeerReport(
                        sent_bytes=message.sent_bytes,
                        blocked_ns=message.blocked_ns,
                        starved_ns=message.starved_ns,
                        withheld_ns=message.withheld_ns,
                        work=message.work if isinstance(message.work, StreamWork) else None,
                    )
                return []
            case Fault():
                return self._fail(error_of(message, self.peer)) if message.stream in (0, self.stream) else []
            case Refused():
                return self._fail(RefusedError(f"the daemon at {self.peer} refused: {message.text}", code=message.code))
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
            # The pings go first, so that the clocks have been compared by the time there is a plan.
            return [*pings, *self._on_shards(ShardsReply(first=0, total=message.shards, rows=message.rows), now_ns)]
        return [self._ask(ShardsRequest(session=self.session, first=0), now_ns), *pings]

    def _on_shards(self, message: ShardsReply, now_ns: int) -> list[RankInstruction]:
        self._move("shardsreply", RemoteProtocolError)
        self._answered(now_ns)
        if message.first != len(self._rows) or not message.rows:
            raise RemoteProtocolError(
                f"a list of shards must continue at row {len(self._rows)} with at least one row, got row "
                f"{message.first} with {len(message.rows)}"
            )
        self._rows.extend(message.rows)
        total = self.welcome.shards if self.welcome else 0
        if message.total != total or len(self._rows) > total:
            raise RemoteProtocolError(
                f"a list of shards must have the {total} rows announced in the welcome, got a total of "
                f"{message.total} and {len(self._rows)} rows so far"
            )
        if len(self._rows) < total:
            return [self._ask(ShardsRequest(session=self.session, first=len(self._rows)), now_ns)]
        self._move("listed", RemoteProtocolError)
        missing = self.welcome.missing if self.welcome else []
        return [Listed(rows=tuple(self._rows), missing=tuple(missing))]

    def _on_answer(self, message: Answer) -> RankInstruction:
        came = self._questions.answered(self.session, message)
        if not isinstance(came.about, AskMatches) or not isinstance(came.told, Matches):
            return came
        self._move("matches", RemoteProtocolError)
        told = self.matches.take(came.about, came.told)
        return Matched(told=told) if isinstance(told, bytes) else Send(message=self.ask(told))

    def _on_plan_reply(self, message: PlanReply, now_ns: int) -> list[RankInstruction]:
        self._move("planreply", RemoteProtocolError)
        self._answered(now_ns)
        if isinstance(message.need_content, str):
            content = self._contents.pop(message.need_content, None)
            if content is None:
                raise RemoteProtocolError("a set of records must be requested once, and by the name in the offer")
            self._asked_ns = self._sent_ns = now_ns
            return [Send(message=part) for part in cut_content(self.session, message.need_content, content())]
        if not message.need_catalog:
            begins = self._offer is not None and self._offer.first is not msgspec.UNSET
            self._move("begins" if begins else "agreed", RemoteProtocolError)
            if begins:
                # Nothing is sent: the first order came with the offer, and both answers come
                # together.
                self._asked_ns = now_ns
            return [Agreed()]
        if self._offer is None:
            raise RemoteProtocolError("a catalog must not be requested before a plan is offered")
        if self._catalog_sent:
            raise RemoteProtocolError("a catalog must be requested once per session, got a second request")
        self._catalog_sent = True
        rows, fingerprint = self._catalog, self._offer.fingerprint
        self._asked_ns = self._sent_ns = now_ns
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

    def _ask(self, message: ControlMessage, now_ns: int) -> Send:
        self._asked_ns = self._sent_ns = now_ns
        return Send(message=message)

    def _answered(self, now_ns: int) -> None:
        if self._sent_ns is not None:
            self._measure(now_ns - self._sent_ns)
        self._asked_ns = self._sent_ns = None

    def _measure(self, round_trip_ns: int) -> None:
        best = self.round_trip_ns
        self.round_trip_ns = round_trip_ns if best is None else min(best, round_trip_ns)

    def _ping(self, now_ns: int) -> Send:
        self._next_ping_ns = now_ns + self._ping_every_ns
        return Send(message=self.pings.next(self.session, now_ns))

    def _fail(self, error: EmlioError) -> list[RankInstruction]:
        instructions = self.leave()
        return [*instructions, Failed(error=error)]

    def _move(self, move: str, blame: type[LocalProtocolError] | type[RemoteProtocolError]) -> None:
        self.state = next_state(RANK_MOVES, self.state, move, blame)
