"""The daemon's side of a session with one training process.

Covers: what may be asked when, collecting a catalog sent in parts, the heartbeat deadline. Does not cover: sockets, plans
(the shell judges offers), streams (the shell runs them). Every method returns what the shell must do.
"""

from collections.abc import Sequence

import msgspec

from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.session.instructions import (
    DaemonInstruction,
    Ended,
    Judge,
    LookUpEnergy,
    LookUpSizes,
    Send,
    StartStream,
    StopStream,
)
from emlio.session.reservation import KeptLanes
from emlio.session.states import DAEMON_MOVES, DaemonState, next_state
from emlio.units import format_duration
from emlio.wire.control import (
    CatalogPart,
    ControlMessage,
    EnergyReply,
    EnergyRequest,
    Goodbye,
    Hello,
    Open,
    Opened,
    Ping,
    PlanOffer,
    PlanReply,
    Pong,
    Refused,
    Reserve,
    ShardRow,
    ShardsReply,
    ShardsRequest,
    SizesRequest,
    Stop,
    Welcome,
)
from emlio.wire.limits import ROWS_IN_WELCOME, ROWS_PER_PART

__all__ = ["DaemonSession"]


class DaemonSession:
    """One session; not thread-safe, owned by the control thread. Begins welcomed."""

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
        self._total = 0
        self._catalog_asked = False
        self._energy_asked = False
        self._lanes = KeptLanes(welcome.session)

    def begin(self) -> list[DaemonInstruction]:
        """What to answer to the hello."""
        rows = list(self._rows) if len(self._rows) <= ROWS_IN_WELCOME else []
        return [Send(message=msgspec.structs.replace(self._welcome, rows=rows))]

    def receive(self, message: ControlMessage, now_ns: int) -> list[DaemonInstruction]:
        """The rank said this. What breaks the rules ends the session, with the reason sent to the rank."""
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
                        f"the first row asked for must be in [0, {len(self._rows)}), got {message.first}"
                    )
                part = list(self._rows[message.first : message.first + ROWS_PER_PART])
                return [Send(message=ShardsReply(first=message.first, total=len(self._rows), rows=part))]
            case SizesRequest():
                return [LookUpSizes(shard=message.shard, first=message.first, count=message.count)]
            case EnergyRequest():
                return [self._on_energy(message)]
            case PlanOffer():
                self._move("planoffer", RemoteProtocolError)
                self.offer = message
                return [Judge(offer=message, rows=None)]
            case CatalogPart():
                return self._on_catalog(message)
            case Reserve():
                self._move("reserve", RemoteProtocolError)
                return [self._lanes.ask(message.lanes, now_ns)]
            case Open():
                running = self.state is DaemonState.STREAMING
                self._move("open", RemoteProtocolError)
                start = [*self._lanes.ordered(message.lanes, now_ns), StartStream(order=message)]
                return [StopStream(), *start] if running else start
            case Stop():
                self._move("stop", RemoteProtocolError)
                return [StopStream()]
            case Goodbye():
                return self._end(message.reason or "the rank said goodbye")
            case _:
                raise RemoteProtocolError(f"a rank must not send {type(message).__name__}")

    def _on_energy(self, question: EnergyRequest) -> LookUpEnergy:
        if self._energy_asked:
            raise RemoteProtocolError("energy must be asked for when the question before was answered, it was not")
        if question.to_ns < question.from_ns:
            raise RemoteProtocolError(
                f"energy must be asked for from a moment on to a later one, got {question.from_ns} ns to {question.to_ns} ns"
            )
        self._energy_asked = True
        return LookUpEnergy(question=question)

    def _on_catalog(self, part: CatalogPart) -> list[DaemonInstruction]:
        self._move("catalogpart", RemoteProtocolError)
        offer = self.offer
        if offer is None or part.fingerprint != offer.fingerprint:
            raise RemoteProtocolError("a catalog must be that of the plan offered, got another fingerprint")
        if part.first != len(self._parts) or not part.rows or len(self._parts) + len(part.rows) > part.total:
            raise RemoteProtocolError(
                f"a catalog must go on at row {len(self._parts)} of {part.total}, "
                f"got row {part.first} with {len(part.rows)} rows"
            )
        if self._parts and part.total != self._total:
            raise RemoteProtocolError(f"a catalog's total must stay {self._total} in all its parts, got {part.total}")
        self._total = part.total
        self._parts.extend(part.rows)
        if len(self._parts) < part.total:
            return []
        self._move("collected", RemoteProtocolError)
        rows, self._parts = tuple(self._parts), []
        return [Judge(offer=offer, rows=rows)]

    # ---- what the shell found out ---------------------------------------------------------------------------------

    def agree(self) -> list[DaemonInstruction]:
        """The offer's digest came out here too."""
        self._move("agree", LocalProtocolError)
        return [Send(message=PlanReply(need_catalog=False))]

    def ask_catalog(self) -> list[DaemonInstruction]:
        """The offer is of a catalog not known here. A session has one dataset, so one catalog, which is sent once."""
        if self._catalog_asked:
            return self.refuse("protocol", "a session may need one catalog, this rank offers plans over a second one")
        self._catalog_asked = True
        self._move("needcatalog", LocalProtocolError)
        self._parts = []
        return [Send(message=PlanReply(need_catalog=True))]

    def reserved(self, ports: Sequence[int], secret: bytes = b"") -> list[DaemonInstruction]:
        """The lanes to be reserved are bound, or none are to be had. Where no order waits for them any more, nothing is said."""
        return self._lanes.bound(ports, secret) if self.state is not DaemonState.OVER else []

    def opened(self, stream: int, ports: Sequence[int], secret: bytes = b"") -> list[DaemonInstruction]:
        """The lanes are bound."""
        return [Send(message=Opened(stream=stream, ports=list(ports), secret=secret))]

    def tell_energy(self, reply: EnergyReply) -> list[DaemonInstruction]:
        """What was found of the energy that the rank asked for. Nothing where it does not ask any more."""
        if not self._energy_asked or self.state is DaemonState.OVER:
            return []
        self._energy_asked = False
        return [Send(message=reply)]

    def refuse(self, code: str, text: str) -> list[DaemonInstruction]:
        """End the session and say why."""
        return [Send(message=Refused(code=code, text=text)), *self._end(f"refused: {text}")]

    def drain(self) -> list[DaemonInstruction]:
        """The daemon is leaving."""
        return [
            Send(message=Goodbye(session=self.session, reason="the daemon is shutting down")),
            *self._end("the daemon is shutting down"),
        ]

    def end(self, reason: str) -> list[DaemonInstruction]:
        """The rank is not there any more, or in another session: there is nobody to tell."""
        return [] if self.state is DaemonState.OVER else self._end(reason)

    def tick(self, now_ns: int) -> list[DaemonInstruction]:
        """Time has passed: a rank not heard of is dead."""
        silent = now_ns - self._heard_ns
        if self.state is DaemonState.OVER:
            return []
        if silent < self._timeout_ns:
            return self._lanes.tick(now_ns)
        return self._end(f"nothing heard for {format_duration(silent)}")

    def deadline_ns(self) -> int:
        """When `tick` must be called at the latest."""
        silent_ns, unused_ns = self._heard_ns + self._timeout_ns, self._lanes.deadline_ns()
        return silent_ns if unused_ns is None else min(silent_ns, unused_ns)

    def _end(self, reason: str) -> list[DaemonInstruction]:
        running = self.state is DaemonState.STREAMING
        self.state = DaemonState.OVER
        end = [*self._lanes.give_up(), Ended(reason=reason)]
        return [StopStream(), *end] if running else end

    def _move(self, move: str, blame: type[LocalProtocolError] | type[RemoteProtocolError]) -> None:
        self.state = next_state(DAEMON_MOVES, self.state, move, blame)
