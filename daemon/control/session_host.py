"""The sessions of a daemon, and carrying out what their state machines ask for.

Does not cover: the protocol (emlio.session.daemon), rules between ranks (emlio.daemon.ranks.rules),
loaders that wait for a session (emlio.daemon.control.arrivals).
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from msgspec import UNSET, UnsetType

from emlio.allocator import give_back_freed_memory
from emlio.clock import Clock
from emlio.daemon.access.permissions import Permissions
from emlio.daemon.config import DaemonConfig
from emlio.daemon.control.admission import Admission
from emlio.daemon.control.answers import Identity, fault_of, not_let_go
from emlio.daemon.control.client import Client
from emlio.daemon.control.questions.service import QuestionService
from emlio.daemon.control.questions.subjects import Subjects
from emlio.daemon.control.session_commands import SessionCommands
from emlio.daemon.control.session_log import SessionLog
from emlio.daemon.control.sessions import Sessions
from emlio.daemon.datasets.collection import Datasets
from emlio.daemon.datasets.inspections import Inspections
from emlio.daemon.lanes.sender import LaneSender
from emlio.daemon.lanes.stream_totals import StreamTotals
from emlio.daemon.network.transport import ControlSocket, Received, Sent
from emlio.daemon.ranks.claims import Admit, Caller, Decision, End, Probe, TurnAway
from emlio.daemon.ranks.comparison import Agree, Differ, Verdict
from emlio.daemon.ranks.rules import RankRules
from emlio.daemon.reading.stream import StreamFailure
from emlio.daemon.streams import Streams
from emlio.errors import RefusedError, RemoteProtocolError
from emlio.session.instructions import (
    DaemonInstruction,
    Ended,
    Judge,
    LookUp,
    Send,
    StartStream,
    StopStream,
)
from emlio.store.opened.slices import Borrower
from emlio.wire.contents import ContentPart
from emlio.wire.control import (
    CatalogPart,
    ControlMessage,
    Ping,
    PlanOffer,
    Pong,
    Refused,
    ShardsReply,
    encode_control,
)
from emlio.wire.status import UserWaits
from emlio.wire.tuning import StreamTuning, StreamWork

__all__ = ["SessionHost", "StreamReports", "Tidying"]

_LEAVING = "this daemon is shutting down"

_STOOD_STILL_NS = 1_000_000_000
"""A turn of the control thread takes milliseconds."""

_TIDY_NS = 5_000_000_000
"""The delay after a session: others may end, and libzmq frees a connection's memory later.
Returning memory takes milliseconds."""


_LOG = logging.getLogger("emlio.daemon")


class StreamReports:
    """Makes the reports on streams. Used by the control thread."""

    def __init__(self, sender: LaneSender, clock: Clock) -> None:
        self._sender = sender
        self._clock = clock

    def pong(self, client: Client, nonce: int, heard_ns: int = 0, tuning: StreamTuning | UnsetType = UNSET) -> Pong:
        """Return the totals of the client's stream, if it has one, and the time, if the ping asked.

        Args:
            client: the client that gets the report.
            nonce: the ping's nonce; 0 if there was no ping.
            heard_ns: the time at which the ping came out of the socket.
            tuning: that came with the ping, if any.
        """
        totals = self._sender.totals(client.stream) if client.stream is not None else StreamTotals()
        return Pong(
            nonce=nonce,
            sent_bytes=totals.sent_bytes,
            blocked_ns=totals.blocked_ns,
            starved_ns=totals.starved_ns,
            withheld_ns=totals.withheld_ns,
            heard_ns=heard_ns,
            said_ns=self._clock.monotonic_ns() if heard_ns else 0,
            work=UNSET if tuning is UNSET else self._work(client),
        )

    def _work(self, client: Client) -> StreamWork:
        return StreamWork(
            tuning=client.tuning.number,
            lanes=client.lanes,
            idle=self._sender.figures(client.group).idle,
            cpu_ns=time.process_time_ns(),
            sent_bytes=self._sender.sent_bytes,
        )

    def all_settled(self, clients: Iterable[Client]) -> bool:
        """Return whether all ranks have read what was sent, and allow no more. Once it is so nothing more is sent."""
        streams = [(client.stream, client.group) for client in clients if client.stream is not None]
        if not all(self._sender.is_settled(*each) for each in streams):
            return False
        stopped = [self._sender.stops(*each) for each in streams]  # of each, not only up to the first that does not
        return all(stopped)

    def last(self, client: Client) -> Pong | None:
        """Return the total of sent bytes, so that the rank can wait for them.

        None for a client without a stream.
        """
        stream = client.stream
        if stream is None:
            return None
        sent, unread = self._sender.totals(stream).sent_bytes, self._sender.unread_bytes(client.group)
        if unread:
            _LOG.warning(
                "%s was not drained: the rank did not read %s bytes in time",
                client.label,
                f"{unread:,}",
                extra={"unread_bytes": unread, **client.facts},
            )
            sent = 0  # data in the lanes is dropped when they are closed: nothing can be promised
        else:
            _LOG.info("%s was drained: %s bytes sent", client.label, f"{sent:,}", extra={"bytes": sent, **client.facts})
        return Pong(nonce=0, sent_bytes=sent)


class Tidying:
    """Times at which memory of ended sessions is returned to the system. Used by the control thread."""

    def __init__(self) -> None:
        """No session has ended."""
        self.due_ns: int | None = None

    def ended(self, now_ns: int, *, others: bool) -> None:
        """Note that a session ended; after the last session, memory is returned at once."""
        if self.due_ns is None or not others:
            self.due_ns = now_ns + (_TIDY_NS if others else 0)

    def is_due(self, now_ns: int, *, again: bool) -> bool:
        """Return whether to do it now; `again` schedules it once more, as some is not free yet."""
        if self.due_ns is None or now_ns < self.due_ns:
            return False
        self.due_ns = now_ns + _TIDY_NS if again else None
        return True


class SessionHost:
    """The sessions of a daemon. Used by the control thread.

    Attributes:
        clients: the sessions, by their connections.
        log: what is noted of them.
    """

    def __init__(
        self,
        config: DaemonConfig,
        datasets: Datasets,
        permissions: Permissions,
        admission: Admission,
        inspections: Inspections,
        streams: Streams,
        socket: ControlSocket,
        identity: Identity,
        log: SessionLog,
        clock: Clock,
        call: Callable[[Callable[[], None]], None],
    ) -> None:
        """Begin without sessions; `call` runs a function in the control thread."""
        self.clients: dict[bytes, Client] = {}
        self.log = log
        self._permissions = permissions
        self._datasets = datasets
        self._inspections = inspections
        self._streams = streams
        self._socket = socket
        self._clock = clock
        offset = streams.data_port - socket.endpoint.port
        self._sessions = Sessions(config, admission, streams, identity, clock, data_offset=offset)
        self._rules = RankRules(heartbeat_timeout_ns=config.heartbeat_timeout)
        self._orders = SessionCommands(datasets, inspections, streams, admission, call, self.carry_out, self._compare)
        self._reports = StreamReports(streams.sender, clock)
        self._questions = QuestionService(Subjects(config, clock), self._send_to, call, self.carry_out)
        # No session's deadline is earlier. Messages only move deadlines later: not all need a look each time.
        self._tick_ns: int | None = None
        self._tidying = Tidying()

    # ---- turns of the thread ------------------------------------------------------------------------------------------

    def deadlines_ns(self, now_ns: int) -> tuple[int | None, ...]:
        """Return the latest times at which `turn` and `tick` must be called."""
        return (
            self._tick_ns,
            self._tidying.due_ns,
            self._rules.deadline_ns(),
            self._permissions.deadline_ns(),
            self._datasets.generations.deadline_ns(),
            self._questions.deadline_ns(now_ns),
        )

    def turn(self) -> None:
        """Make the answers for which there is memory now."""
        self._questions.turn()

    def tick(self, now_ns: int) -> None:
        """Time has passed: end silent sessions and those whose permission was revoked, close unused datasets."""
        self._look_at_permissions(now_ns)
        self._tick(now_ns)
        self._decide(self._rules.tick(now_ns))
        self._close_unused(now_ns)
        # A long answer is freed when its peer reads it or goes, perhaps long after its session.
        if self._tidying.is_due(now_ns, again=self._questions.under_way):
            give_back_freed_memory()

    def _tick(self, now_ns: int) -> None:
        if self._tick_ns is None or now_ns < self._tick_ns:
            return
        if now_ns - self._tick_ns > _STOOD_STILL_NS:
            self.log.stood_still(now_ns - self._tick_ns)
            for client in self.clients.values():
                client.machine.spare(now_ns)
        for client in list(self.clients.values()):
            self.carry_out(client, client.machine.tick(now_ns))
        self._tick_ns = min((client.machine.deadline_ns() for client in self.clients.values()), default=None)

    def _watch(self, client: Client) -> None:
        self._tick_ns = min(self._tick_ns or client.machine.deadline_ns(), client.machine.deadline_ns())

    def drain(self) -> None:
        """Turn away who waits for a rank's place, and let streams end with what was read."""
        self._decide(self._rules.dismiss("draining", _LEAVING))
        for client in self.clients.values():
            if client.stream is not None:
                self._streams.readers.finish(client.stream)
        self.log.draining(len(self.clients))

    @property
    def is_drained(self) -> bool:
        """Return whether all ranks have read what was sent, and allow no more."""
        return self._reports.all_settled(self.clients.values())

    def close(self) -> None:
        """End all sessions, and the threads that work for them."""
        self._decide(self._rules.dismiss("draining", _LEAVING))
        for client in list(self.clients.values()):
            if (last := self._reports.last(client)) is not None:
                self.send(client.identity, last)
            self.carry_out(client, client.machine.drain())
        self._questions.close()
        self._inspections.close()

    def _look_at_permissions(self, now_ns: int) -> None:
        """End the sessions whose permission was revoked."""
        for client in list(self.clients.values()) if self._permissions.look(now_ns) else ():
            dataset = client.caller.dataset
            if not self._permissions.may_read_on(client.key, dataset):
                self.carry_out(
                    client, client.machine.refuse("revoked", f"this key is no longer allowed to read {dataset}")
                )

    def _close_unused(self, now_ns: int) -> None:
        """Close the generations that no job reads any more."""
        for served in self._datasets.generations.take_unused(now_ns):
            # What a thread or libzmq still uses is closed at a later look.
            unused = (
                self._inspections.forget(served)
                and self._questions.forget_dataset(served)
                and self._streams.readers.end(served.key)
            )
            if unused and self._datasets.end(served):
                self.log.closed(served)

    # ---- messages -----------------------------------------------------------------------------------------------------

    def waits(self, connection: bytes) -> bool:
        """Return whether a loader at this connection waits for a rank's place."""
        return self._rules.waits(connection)

    def hear(self, client: Client, message: ControlMessage, received: Received, heard_ns: int) -> None:
        """Handle a message of a session."""
        self._decide(self._rules.said(client.identity, message, heard_ns))
        match message:
            case CatalogPart() | ContentPart() if not self._orders.has_memory(client, message, received.data):
                text = "no memory for another list of shards or records at the moment; retry later"
                self.refuse(client.identity, "no-session", text)
            case Ping() if client.stream is not None:
                client.machine.receive(message, heard_ns)
                if isinstance(message.tuning, StreamTuning):
                    self._orders.tune(client, message.tuning)
                if isinstance(message.waits, UserWaits):
                    client.user.add(message.waits, heard_ns)
                self.carry_out(
                    client, [Send(message=self._reports.pong(client, message.nonce, heard_ns, message.tuning))]
                )
            case _:
                self.carry_out(client, client.machine.receive(message, heard_ns))
        if client.identity in self.clients:
            self._decide(self._rules.heard(client.identity, self._clock.monotonic_ns()))

    def refuse(self, connection: bytes, code: str, text: str) -> None:
        """End the session at a connection, or what waits there for one, and send the reason."""
        client = self.clients.get(connection)
        if client is not None:
            self.carry_out(client, client.machine.refuse(code, text))
        else:
            self._leave(connection)
            self.send(connection, Refused(code=code, text=text))

    # ---- rules between ranks ----------------------------------------------------------------------------------------

    def admit(self, caller: Caller) -> None:
        """Begin a session for a loader whose files are checked, once the rules between ranks let it."""
        self._decide(self._rules.say_hello(caller, self._clock.monotonic_ns()))

    def _compare(self, client: Client, offer: PlanOffer) -> None:
        self._decide(self._rules.offer(client.caller, offer, self._clock.monotonic_ns()))

    def _leave(self, connection: bytes) -> None:
        self._decide(self._rules.gone(connection, self._clock.monotonic_ns()))

    def _decide(self, decisions: Sequence[Decision | Verdict]) -> None:
        for decision in decisions:
            match decision:
                case Admit(caller=caller):
                    self._admit(caller)
                case TurnAway(caller=caller, code=code, text=text):
                    self.log.refused(caller, code, text)
                    self.send(caller.connection, Refused(code=code, text=text))
                case Agree(connection=connection):
                    if (client := self.clients.get(connection)) is not None:
                        self.carry_out(client, client.machine.agree())
                case Differ(connection=connection, text=text):
                    self.refuse(connection, "ranks-differ", text)
                case End(connection=connection, reason=reason):
                    if (client := self.clients.get(connection)) is not None:
                        self.carry_out(client, client.machine.end(reason))
                case Probe(connection=connection):
                    # An earlier decision of this list may have ended the session.
                    if (client := self.clients.get(connection)) is not None:
                        self.carry_out(client, [Send(message=self._reports.pong(client, 0))])
                        if not client.reached:
                            self._rules.lost(connection, self._clock.monotonic_ns())

    def _admit(self, caller: Caller) -> None:
        identity = caller.connection
        try:
            client = self._sessions.begin(caller)
        except RefusedError as error:
            self._decide([TurnAway(caller=caller, code=error.code, text=str(error))])
            self._leave(identity)
            return
        self.clients[identity] = client
        self._watch(client)
        self.log.began(client)
        self.carry_out(client, client.machine.begin())
        if not client.reached:
            self.carry_out(client, client.machine.end("the rank disconnected before it was welcomed"))

    # ---- carrying out ---------------------------------------------------------------------------------------------

    def send(self, identity: bytes, message: ControlMessage) -> bool:
        """Send a message; return whether the peer is connected."""
        return self._socket.send(identity, encode_control(message)).reached

    def _send_to(self, client: Client, data: bytes | memoryview) -> Sent:
        sent = self._socket.send(client.identity, data)
        client.reached = sent.reached
        if sent.reached and not sent.taken:
            self.carry_out(client, client.machine.end("the rank does not read its answers"))
        return sent

    def carry_out(self, client: Client, instructions: Sequence[DaemonInstruction]) -> None:
        """Carry out what a session's machine asks for."""
        for instruction in instructions:
            match instruction:
                case Send(message=ShardsReply() as reply):
                    self._questions.list_shards(client, reply)
                case Send(message=message):
                    self._send_to(client, encode_control(self._rules.answer(client.identity, message)))
                case LookUp(question=question):
                    self._questions.look_up(client, question)
                case Judge() | StartStream() | StopStream():
                    self._orders.do(client, instruction)
                    self._watch(client)
                case Ended(reason=reason, failure=failure):
                    if self.clients.pop(client.identity, None) is not None:
                        self._tidying.ended(self._clock.monotonic_ns(), others=bool(self.clients))
                        self.log.ended(client, reason, failure, self._streams.sender.figures(client.group))
                        self._sessions.end(client)
                        self._orders.forget(client)
                        self._questions.forget(client)
                        self._leave(client.identity)

    def let_go(self, path: Path, borrowers: Collection[Borrower]) -> None:
        """End the streams of ranks that block a writer.

        A process waits to write to this file, and ranks do not read what was sent from it.
        """
        error = not_let_go(path)
        for client in list(self.clients.values()):
            if client.stream is not None and any(client.stream is borrower for borrower in borrowers):
                self.failed(StreamFailure(stream=client.stream, error=error))
                self._orders.stop(client)

    def failed(self, failure: StreamFailure) -> None:
        """Tell a rank that its stream cannot go on."""
        stream, error = failure.stream, failure.error
        for client in self.clients.values():
            if client.stream is stream:
                self.log.failed(client, error)
                self.send(client.identity, fault_of(stream.stream, error))

    def misbehaved(self, session: int, error: RemoteProtocolError) -> None:
        """Refuse a session whose rank broke the protocol on its lanes."""
        for client in list(self.clients.values()):
            if client.machine.session == session:
                self.carry_out(client, client.machine.refuse("protocol", str(error)))
