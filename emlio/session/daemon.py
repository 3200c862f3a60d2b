"""The daemon's side of a session with one training process.

Every method returns the instructions that the caller must carry out.

Covers: which request is allowed in which state, collecting a catalog sent in parts, the heartbeat
deadline. Does not cover: sockets, plans (the caller checks offers), streams (the caller runs them).
"""

from collections.abc import Sequence

import msgspec

from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.session.contents import ContentCollector
from emlio.session.instructions import (
    DaemonInstruction,
    Ended,
    Judge,
    LookUp,
    Send,
    StartStream,
    StopStream,
)
from emlio.session.questions import QuestionsAnswered
from emlio.session.states import DAEMON_MOVES, DaemonState, next_state
from emlio.units import format_duration
from emlio.wire.contents import ContentPart
from emlio.wire.control import (
    CatalogPart,
    ControlMessage,
    Goodbye,
    Hello,
    Open,
    Opened,
    Ping,
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
from emlio.wire.limits import ROWS_IN_WELCOME, ROWS_PER_PART
from emlio.wire.questions import AskMatches

__all__ = ["DaemonSession"]


class DaemonSession:
    """One session, in state GREETED from the start.

    Not thread-safe; owned by the control thread.
    """

    def __init__(
        self, *, hello: Hello, welcome: Welcome, rows: Sequence[ShardRow], heartbeat_timeout_ns: int, now_ns: int
    ) -> None:
        self.hello = hello
        self.session = welcome.session
        self.state = DaemonState.GREETED
        self.offer: PlanOffer | None = None
        self._welcome = welcome
        self._rows = rows
        self._timeout_ns = heartbeat_timeout_ns
        self._heard_ns = now_ns
        self._parts: list[ShardRow] = []
        self._stream = 0
        self._total = 0
        self._catalog_asked = False
        self._content: ContentCollector | None = None
        self._contents_asked: set[str] = set()
        self._questions = QuestionsAnswered()

    def begin(self) -> list[DaemonInstruction]:
        """Return the answer to the hello."""
        rows = list(self._rows) if len(self._rows) <= ROWS_IN_WELCOME else []
        return [Send(message=msgspec.structs.replace(self._welcome, rows=rows))]

    def receive(self, message: ControlMessage, now_ns: int) -> list[DaemonInstruction]:
        """Handle a message from the rank.

        A message that breaks the protocol ends the session; the reason is sent to the rank.
        """
        if self.state is DaemonState.OVER:
            return []
        self._heard_ns = now_ns
        try:
            return self._handle(message, now_ns)
        except RemoteProtocolError as error:
            return self.refuse("protocol", str(error))

    def _handle(self, message: ControlMessage, now_ns: int) -> list[DaemonInstruction]:
        match message:
            case Ping():
                return [Send(message=Pong(nonce=message.nonce, heard_ns=now_ns, said_ns=now_ns))]
            case ShardsRequest():
                self._move("shardsrequest", RemoteProtocolError)
                if message.first >= max(len(self._rows), 1):
                    raise RemoteProtocolError(
                        f"the first requested row must be in [0, {len(self._rows)}), got {message.first}"
                    )
                part = list(self._rows[message.first : message.first + ROWS_PER_PART])
                return [Send(message=ShardsReply(first=message.first, total=len(self._rows), rows=part))]
            case Question():
                if isinstance(message.about, AskMatches):
                    self._move("askmatches", RemoteProtocolError)
                self._questions.ask(message)
                return [LookUp(question=message)]
            case PlanOffer():
                self._move("planoffer", RemoteProtocolError)
                if message.first is not msgspec.UNSET:
                    self._check_order(message.first)
                self.offer = message
                return [Judge(offer=message, rows=None)]
            case CatalogPart():
                return self._on_catalog(message)
            case ContentPart():
                return self._on_content(message)
            case Open():
                running = self.state is DaemonState.STREAMING
                self._check_order(message)  # before the move: a refused order has begun no stream that must be stopped
                self._move("open", RemoteProtocolError)
                start = self._start(message)
                return [StopStream(), start] if running else [start]
            case Stop():
                self._move("stop", RemoteProtocolError)
                return [StopStream()]
            case Goodbye():
                return self._end(message.reason or "the rank sent goodbye")
            case _:
                raise RemoteProtocolError(f"a rank must not send {type(message).__name__}")

    def _on_catalog(self, part: CatalogPart) -> list[DaemonInstruction]:
        self._move("catalogpart", RemoteProtocolError)
        if self._content is not None:
            raise RemoteProtocolError("a set of records must be sent now, a catalog came")
        offer = self.offer
        if offer is None or part.fingerprint != offer.fingerprint:
            raise RemoteProtocolError("a catalog must have the fingerprint of the offered plan, got another one")
        if part.first != len(self._parts) or not part.rows or len(self._parts) + len(part.rows) > part.total:
            raise RemoteProtocolError(
                f"a catalog must continue at row {len(self._parts)} of {part.total}, got row {part.first} with "
                f"{len(part.rows)} rows"
            )
        if self._parts and part.total != self._total:
            raise RemoteProtocolError(f"a catalog's total must be {self._total} in all its parts, got {part.total}")
        self._total = part.total
        self._parts.extend(part.rows)
        if len(self._parts) < part.total:
            return []
        self._move("collected", RemoteProtocolError)
        rows, self._parts = tuple(self._parts), []
        return [Judge(offer=offer, rows=rows)]

    def _on_content(self, part: ContentPart) -> list[DaemonInstruction]:
        self._move("contentpart", RemoteProtocolError)
        if self.offer is None or self._content is None:
            raise RemoteProtocolError("a set of records must be sent when it was requested, this one was not")
        content = self._content.take(part)
        if content is None:
            return []
        self._move("collected", RemoteProtocolError)
        self._content = None
        return [Judge(offer=self.offer, rows=None, content=content)]

    # ---- results from the caller ----------------------------------------------------------------------------------

    def agree(self) -> list[DaemonInstruction]:
        """Accept the offer, and start the stream that came with it, if any.

        The caller computed the same digest.
        """
        self._move("agree", LocalProtocolError)
        agreed = Send(message=PlanReply(need_catalog=False))
        first = self.offer.first if self.offer is not None else msgspec.UNSET
        if first is msgspec.UNSET:
            return [agreed]
        self._move("open", LocalProtocolError)
        return [agreed, self._start(first)]

    def _check_order(self, order: Open) -> None:
        """Refuse a stream number that is not new.

        Payloads of two streams with the same number would be sealed with the same key.
        """
        if order.stream <= self._stream:
            raise RemoteProtocolError(
                f"a stream's number must be above that of the last stream, {self._stream}, got {order.stream}"
            )

    def _start(self, order: Open) -> StartStream:
        self._stream = order.stream
        return StartStream(order=order)

    def ask_catalog(self) -> list[DaemonInstruction]:
        """Ask the rank for the catalog, which this daemon does not know.

        A session has one dataset and so one catalog, which is sent once.
        """
        if self._catalog_asked:
            return self.refuse("protocol", "a session must use one catalog, this rank offered plans over a second one")
        self._catalog_asked = True
        self._move("needcatalog", LocalProtocolError)
        self._parts = []
        return [Send(message=PlanReply(need_catalog=True))]

    def ask_content(self, digest: str) -> list[DaemonInstruction]:
        """Ask the rank for a set of records that its sampling names, once in a session."""
        if digest in self._contents_asked:
            return self.refuse("protocol", "a set of records must have the digest by which its sampling names it")
        self._contents_asked.add(digest)
        self._move("needcontent", LocalProtocolError)
        self._content = ContentCollector(digest)
        return [Send(message=PlanReply(need_catalog=False, need_content=digest))]

    def opened(self, stream: int, lanes: int, lane_bytes: int = 0) -> list[DaemonInstruction]:
        """Report that the stream has begun."""
        return [Send(message=Opened(stream=stream, lanes=lanes, lane_bytes=lane_bytes))]

    def answered(self, number: int) -> bool:
        """Note that a question's answer is sent now; return False if it must not be, since it is not open."""
        return self.state is not DaemonState.OVER and self._questions.answered(number)

    def refuse(self, code: str, text: str) -> list[DaemonInstruction]:
        """End the session and tell the rank why."""
        return [Send(message=Refused(code=code, text=text)), *self._end(f"refused: {text}", code)]

    def drain(self) -> list[DaemonInstruction]:
        """Say goodbye: the daemon is shutting down."""
        return [
            Send(message=Goodbye(session=self.session, reason="the daemon is shutting down")),
            *self._end("the daemon is shutting down"),
        ]

    def end(self, reason: str) -> list[DaemonInstruction]:
        """End the session without a message.

        The rank is gone, or has begun another session.
        """
        return [] if self.state is DaemonState.OVER else self._end(reason)

    def tick(self, now_ns: int) -> list[DaemonInstruction]:
        """End the session if the rank has been silent for too long."""
        silent = now_ns - self._heard_ns
        if self.state is DaemonState.OVER:
            return []
        if silent < self._timeout_ns:
            return []
        # Without a stream it only looked at single records, as workers of a DataLoader do, which end without a goodbye.
        return self._end(f"the rank was silent for {format_duration(silent)}", "lost" if self._stream else "")

    def spare(self, now_ns: int) -> None:
        """Give the rank a heartbeat timeout from now on: this process could not hear it before."""
        self._heard_ns = max(self._heard_ns, now_ns)

    @property
    def heard_ns(self) -> int:
        """The time of the rank's last message."""
        return self._heard_ns

    def deadline_ns(self) -> int:
        """The latest time at which `tick` must be called."""
        return self._heard_ns + self._timeout_ns

    def _end(self, reason: str, failure: str = "") -> list[DaemonInstruction]:
        running = self.state is DaemonState.STREAMING
        self.state = DaemonState.OVER
        end = Ended(reason=reason, failure=failure)
        return [StopStream(), end] if running else [end]

    def _move(self, move: str, blame: type[LocalProtocolError] | type[RemoteProtocolError]) -> None:
        self.state = next_state(DAEMON_MOVES, self.state, move, blame)
