"""The control thread: sessions, and carrying out what their state machines ask for.

Covers: receiving control messages, carrying out instructions, heartbeat deadlines, stream failures.
Does not cover: the rules of the protocol (emlio.session.daemon), of ranks
(emlio.daemon.ranks.rules), plans (emlio.daemon.datasets.served), moving data.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from emlio.allocator import give_back_freed_memory
from emlio.clock import Clock
from emlio.daemon.access.permissions import Permissions
from emlio.daemon.config import DaemonConfig
from emlio.daemon.control.admission import Admission
from emlio.daemon.control.answers import fault_of, not_let_go
from emlio.daemon.control.arrivals import Arrivals
from emlio.daemon.control.client import Client
from emlio.daemon.control.duty_cycle import DutyCycle
from emlio.daemon.control.questions.service import QuestionService
from emlio.daemon.control.questions.subjects import Subjects
from emlio.daemon.control.session_commands import SessionCommands
from emlio.daemon.control.session_log import SessionLog
from emlio.daemon.control.sessions import Sessions
from emlio.daemon.control.status.report import DaemonFigures
from emlio.daemon.control.status.service import StatusService
from emlio.daemon.control.stream_reports import StreamReports
from emlio.daemon.control.tidying import Tidying
from emlio.daemon.datasets.collection import Datasets
from emlio.daemon.datasets.inspections import Inspections
from emlio.daemon.failures import Failures
from emlio.daemon.last_resort import INTERNAL, guarded
from emlio.daemon.network.transport import ControlSocket, Network, Received, Sent, Waiter
from emlio.daemon.network.zap_thread import ZapThread
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
from emlio.waker import Waker
from emlio.wire.contents import ContentPart
from emlio.wire.control import (
    CatalogPart,
    ControlMessage,
    Hello,
    Ping,
    PlanOffer,
    Pong,
    Refused,
    ShardsReply,
    StatusRequest,
    decode_control,
    encode_control,
)

__all__ = ["Control"]

_LEAVING = "this daemon is shutting down"


class Control:
    """Owns the control socket, the sessions and, through them, all streams.

    `run` is the body of the control thread.
    """

    def __init__(
        self,
        config: DaemonConfig,
        datasets: Datasets,
        permissions: Permissions,
        network: Network,
        zap_thread: ZapThread,
        clock: Clock,
        failures: Failures,
    ) -> None:
        self._config = config
        self._log = SessionLog(failures, clock)
        self._permissions = permissions
        self._admission = Admission(config, datasets, permissions)
        self._datasets = datasets
        self._clock = clock
        self._socket: ControlSocket = network.control()
        self._waker = Waker()
        try:
            self._streams = Streams(
                config,
                network.lanes(config.data_endpoint, self._socket.endpoint.port),
                zap_thread,
                clock,
                on_failure=lambda failure: self.call(partial(self._on_failure, failure)),
                on_fault=lambda session, error: self.call(partial(self._on_fault, session, error)),
            )
        except BaseException:
            self._socket.close(linger_ms=0)
            self._waker.close()
            raise
        datasets.when_stuck(lambda path, borrowers: self.call(lambda: self._let_go(path, borrowers)))
        offset = self._streams.data_port - self._socket.endpoint.port
        self._sessions = sessions = Sessions(config, self._admission, self._streams, clock, data_offset=offset)
        self._status = StatusService(config, datasets, permissions, self._streams, sessions.identity, failures, clock)
        self._status.local = network.local_status(self._socket.endpoint)
        self._inspections = Inspections(clock, self.call)
        self._rules = RankRules(heartbeat_timeout_ns=config.heartbeat_timeout)
        self._arrivals = Arrivals(self._admission, self._inspections, self._send, self._admitted, clock, failures)
        self._orders = SessionCommands(
            datasets, self._inspections, self._streams, self.call, self._carry_out, self._compare
        )
        self._reports = StreamReports(self._streams, clock)
        self._questions = QuestionService(Subjects(config, clock), self._send_to, self.call, self._carry_out)
        self._turns = DutyCycle()
        self._clients: dict[bytes, Client] = {}
        self._calls: deque[Callable[[], None]] = deque()
        # No session's deadline is earlier. Messages only move deadlines later: not all need a look each time.
        self._tick_ns: int | None = None
        self._tidying = Tidying()
        self._draining = False
        self._drain_until_ns = 0
        self._stop = False

    @property
    def endpoint(self) -> str:
        """The endpoint of the control port, with the real port."""
        return str(self._socket.endpoint)

    def figures(self) -> DaemonFigures:
        """Return the figures for metrics. Only for the control thread, see `call`."""
        return self._status.figures(self._clients.values(), begun=self._log.begun)

    def call(self, action: Callable[[], None]) -> None:
        """Run `action` in the control thread; may be called from any thread and signal handler."""
        self._calls.append(action)
        self._waker.wake()

    def run(self) -> None:
        """Serve until `stop`, or until `drain` has finished."""
        self._streams.start()
        waiter, deaf = Waiter(self._waker), Waiter(self._waker)
        try:
            while not self._stop:
                if self._turns.rest_ns(self._clock.monotonic_ns()):
                    deaf.wait(self._timeout_ms())
                else:
                    waiter.wait(self._timeout_ms(), self._socket, self._status.local)
                while self._calls:
                    guarded(self._calls.popleft())
                self._listen()
                self._questions.turn()
                now_ns = self._clock.monotonic_ns()
                self._look_at_permissions(now_ns)
                self._tick(now_ns)
                self._decide(self._rules.tick(now_ns))
                self._close_unused(now_ns)
                # A long answer is freed when its peer reads it or goes, perhaps long after its
                # session.
                if self._tidying.is_due(now_ns, again=self._questions.under_way):
                    give_back_freed_memory()
        finally:
            self._decide(self._rules.dismiss("draining", _LEAVING))
            for client in list(self._clients.values()):
                if (last := self._reports.last(client)) is not None:
                    self._send(client.identity, last)
                self._carry_out(client, client.machine.drain())
            self._questions.close()
            self._inspections.close()
            self._streams.close()
            self._status.close()
            self._socket.close()
            self._waker.close()

    def abandon(self) -> None:
        """Free everything, if `run` was never called."""
        self._streams.close()
        self._status.close()
        self._socket.close(linger_ms=0)
        self._waker.close()

    def drain(self) -> None:
        """Take no new sessions; end when what was read has left, or the time is up."""
        self._draining = self._orders.draining = self._arrivals.draining = self._status.draining = True
        self._drain_until_ns = self._clock.monotonic_ns() + self._config.drain_timeout
        self._decide(self._rules.dismiss("draining", _LEAVING))
        for client in self._clients.values():
            if client.stream is not None:
                self._streams.finish(client.stream)
        self._log.draining(len(self._clients))

    def stop(self) -> None:
        """End without waiting."""
        self._stop = True

    # ---- receiving ------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        if not self._turns.begin(self._clock.monotonic_ns()):
            return
        guarded(partial(self._status.hear, self._clients.values()))
        while (received := self._socket.receive()) is not None:
            refuse = partial(self._refuse, received.connection, "internal", INTERNAL)
            guarded(partial(self._on_message, received), refuse)
            if self._turns.over(self._clock.monotonic_ns()):
                return

    def _tick(self, now_ns: int) -> None:
        if self._tick_ns is None or now_ns < self._tick_ns:
            return
        for client in list(self._clients.values()):
            self._carry_out(client, client.machine.tick(now_ns))
        self._tick_ns = min((client.machine.deadline_ns() for client in self._clients.values()), default=None)

    def _watch(self, client: Client) -> None:
        self._tick_ns = min(self._tick_ns or client.machine.deadline_ns(), client.machine.deadline_ns())

    def _timeout_ms(self) -> int | None:
        now_ns = self._clock.monotonic_ns()
        others = (
            self._tick_ns,
            self._tidying.due_ns,
            self._rules.deadline_ns(),
            self._permissions.deadline_ns(),
            self._datasets.generations.deadline_ns(),
            self._questions.deadline_ns(now_ns),
            self._turns.deadline_ns(now_ns),
        )
        deadlines = [at for at in others if at is not None]
        if self._draining:
            # Wait until all is read: closing a connection with unread data here drops what the rank has not read.
            if now_ns >= self._drain_until_ns or self._reports.all_settled(self._clients.values()):
                self._stop = True
                return 0
            deadlines.append(now_ns + 20_000_000)
        if not deadlines:
            return None
        return max(0, (min(deadlines) - now_ns) // 1_000_000 + 1)

    def _on_message(self, received: Received) -> None:
        identity, heard_ns = received.connection, self._clock.monotonic_ns()
        client = self._clients.get(identity)
        try:
            message = decode_control(received.data)
        except RemoteProtocolError as error:
            self._log.invalid(received, client, error)
            self._refuse(identity, "protocol", str(error))
            return
        if client is not None:
            self._decide(self._rules.said(identity, message, heard_ns))
        match message:
            case CatalogPart() | ContentPart() if client and not self._orders.has_memory(
                client, message, received.data
            ):
                self._refuse(
                    identity, "no-session", "no memory for another list of shards or records at the moment; retry later"
                )
            case Hello() if client is not None or self._arrivals.waits(identity) or self._rules.waits(identity):
                self._refuse(identity, "protocol", "a connection must send hello once, got a second one")
            case Hello():
                caller = Caller(connection=identity, hello=message, address=received.address, key=received.key)
                self._arrivals.greet(caller)
            case Ping() if client is not None and client.stream is not None:
                client.machine.receive(message, heard_ns)
                self._carry_out(client, [Send(message=self._reports.pong(client, message.nonce, heard_ns))])
            case StatusRequest() if client is None:
                self._status.answer(message, received, self._clients.values(), self._socket.send)
            case Ping() if client is None and message.session == 0:
                self._send(identity, Pong(nonce=message.nonce))
            case _ if client is None:
                self._refuse(identity, "no-session", "no session on this connection: send hello first")
            case _:
                self._carry_out(client, client.machine.receive(message, heard_ns))
        if client is not None and identity in self._clients:
            self._decide(self._rules.heard(identity, self._clock.monotonic_ns()))

    def _refuse(self, identity: bytes, code: str, text: str) -> None:
        """End everything with this peer, and send the reason."""
        client = self._clients.get(identity)
        if client is not None:
            self._carry_out(client, client.machine.refuse(code, text))
        else:
            self._arrivals.gone(identity)
            self._leave(identity)
            self._send(identity, Refused(code=code, text=text))

    def _look_at_permissions(self, now_ns: int) -> None:
        """End the sessions whose permission was revoked."""
        for client in list(self._clients.values()) if self._permissions.look(now_ns) else ():
            dataset = client.caller.dataset
            if not self._permissions.may_read_on(client.key, dataset):
                self._carry_out(
                    client, client.machine.refuse("revoked", f"this key is no longer allowed to read {dataset}")
                )

    def _close_unused(self, now_ns: int) -> None:
        """Close the generations that no job reads any more."""
        for served in self._datasets.generations.take_unused(now_ns):
            # What a thread or libzmq still uses is closed at a later look.
            unused = (
                self._inspections.forget(served)
                and self._questions.forget_dataset(served)
                and self._streams.end_dataset(served)
            )
            if unused and self._datasets.end(served):
                self._log.closed(served)

    # ---- rules between ranks ----------------------------------------------------------------------------------------

    def _admitted(self, caller: Caller) -> None:
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
                    self._log.refused(caller, code, text)
                    self._send(caller.connection, Refused(code=code, text=text))
                case Agree(connection=connection):
                    if (client := self._clients.get(connection)) is not None:
                        self._carry_out(client, client.machine.agree())
                case Differ(connection=connection, text=text):
                    self._refuse(connection, "ranks-differ", text)
                case End(connection=connection, reason=reason):
                    if (client := self._clients.get(connection)) is not None:
                        self._carry_out(client, client.machine.end(reason))
                case Probe(connection=connection):
                    # An earlier decision of this list may have ended the session.
                    if (client := self._clients.get(connection)) is not None:
                        self._carry_out(client, [Send(message=self._reports.pong(client, 0))])
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
        self._clients[identity] = client
        self._watch(client)
        self._log.began(client)
        self._carry_out(client, client.machine.begin())
        if not client.reached:
            self._carry_out(client, client.machine.end("the rank disconnected before it was welcomed"))

    # ---- carrying out ---------------------------------------------------------------------------------------------

    def _send(self, identity: bytes, message: ControlMessage) -> bool:
        """Send a message; return whether the peer is connected."""
        return self._socket.send(identity, encode_control(message)).reached

    def _send_to(self, client: Client, data: bytes) -> Sent:
        sent = self._socket.send(client.identity, data)
        client.reached = sent.reached
        if sent.reached and not sent.taken:
            self._carry_out(client, client.machine.end("the rank does not read its answers"))
        return sent

    def _carry_out(self, client: Client, instructions: Sequence[DaemonInstruction]) -> None:
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
                    if self._clients.pop(client.identity, None) is not None:
                        self._tidying.ended(self._clock.monotonic_ns(), others=bool(self._clients))
                        self._log.ended(client, reason, failure, self._streams.figures(client.group))
                        self._sessions.end(client)
                        self._orders.forget(client)
                        self._questions.forget(client)
                        self._leave(client.identity)

    def _let_go(self, path: Path, borrowers: Collection[Borrower]) -> None:
        """End the streams of ranks that block a writer.

        A process waits to write to this file, and ranks do not read what was sent from it.
        """
        error = not_let_go(path)
        for client in list(self._clients.values()):
            if client.stream is not None and any(client.stream is borrower for borrower in borrowers):
                self._on_failure(StreamFailure(stream=client.stream, error=error))
                self._orders.stop(client)

    def _on_failure(self, failure: StreamFailure) -> None:
        stream, error = failure.stream, failure.error
        for client in self._clients.values():
            if client.stream is stream:
                self._log.failed(client, error)
                self._send(client.identity, fault_of(stream.stream, error))

    def _on_fault(self, session: int, error: RemoteProtocolError) -> None:
        """Refuse a session whose rank broke the protocol on its lanes."""
        for client in list(self._clients.values()):
            if client.machine.session == session:
                self._carry_out(client, client.machine.refuse("protocol", str(error)))
