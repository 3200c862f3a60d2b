"""The control thread: sessions, and what their state machines ask for.

Covers: receiving control messages, carrying out instructions, heartbeat deadlines, faults of streams. Does not cover: the
rules of the conversation (emlio.session.daemon), plans (emlio.daemon.library), moving data.
"""

import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emlio import __version__
from emlio.clock import Clock
from emlio.daemon.config import DaemonConfig
from emlio.daemon.library import AgreedPlan, Library, ServedDataset
from emlio.daemon.stream import Stream, StreamFailure
from emlio.daemon.streams import Streams
from emlio.daemon.transport import ControlSocket, Network, Waiter, send_buffer_bytes
from emlio.errors import CorruptRecordError, DatasetError, EmlioError, RefusedError, RemoteProtocolError
from emlio.reading.slices import Borrower
from emlio.session.daemon import DaemonSession
from emlio.session.instructions import DaemonInstruction, Ended, Judge, LookUpSizes, Send, StartStream, StopStream
from emlio.waker import Waker
from emlio.wire.control import (
    ControlMessage,
    Fault,
    Hello,
    Open,
    Ping,
    Pong,
    Refused,
    Welcome,
    decode_control,
    encode_control,
)
from emlio.wire.limits import MAX_LANES

__all__ = ["Control"]

_LOG = logging.getLogger("emlio.daemon")
_MISSING_NAMED = 16
_LEAVING = "this daemon is shutting down"

_MESSAGES_A_TURN = 256
"""Messages taken before deadlines and other threads have their turn, however many a peer sends."""

_COMPLAIN_EVERY_NS = 1_000_000_000
"""A peer that talks nonsense must not fill the log."""


@dataclass(slots=True, kw_only=True)
class _Client:
    """A session and what belongs to it."""

    identity: bytes
    machine: DaemonSession
    served: ServedDataset
    agreed: AgreedPlan | None = None
    stream: Stream | None = None
    label: str = field(default="")


class Control:
    """Owns the control socket, the sessions and, through them, all streams. `run` is the control thread's body."""

    def __init__(self, config: DaemonConfig, library: Library, network: Network, clock: Clock) -> None:
        self._config = config
        self._library = library
        self._clock = clock
        self._socket: ControlSocket = network.control()
        self._waker = Waker()
        try:
            self._streams = Streams(config, network, clock, self._hear_failure)
        except BaseException:
            self.abandon()
            raise
        library.when_stuck(lambda path, borrowers: self.call(lambda: self._let_go(path, borrowers)))
        self._clients: dict[bytes, _Client] = {}
        self._calls: deque[Callable[[], None]] = deque()
        self._next_session = 1
        self._draining = False
        self._drain_until_ns = 0
        self._stop = False
        self._nonsense = 0
        self._complained_ns: int | None = None
        self._name = f"{socket.gethostname()}-{os.getpid()}"

    @property
    def endpoint(self) -> str:
        """Where ranks say hello, with the real port."""
        return str(self._socket.endpoint)

    def call(self, action: Callable[[], None]) -> None:
        """Run `action` in the control thread; from any thread, and from signal handlers."""
        self._calls.append(action)
        self._waker.wake()

    def run(self) -> None:
        """Serve until `stop`, or until `drain` has emptied."""
        self._streams.start()
        waiter = Waiter(self._waker)
        try:
            while not self._stop:
                waiter.wait(self._timeout_ms(), control=self._socket)
                while self._calls:
                    self._calls.popleft()()
                for _ in range(_MESSAGES_A_TURN):
                    received = self._socket.receive()
                    if received is None:
                        break
                    self._on_message(*received)
                now_ns = self._clock.monotonic_ns()
                for client in list(self._clients.values()):
                    self._carry_out(client, client.machine.tick(now_ns))
        finally:
            for client in list(self._clients.values()):
                self._say_what_left(client)
                self._carry_out(client, client.machine.drain())
            self._streams.close()
            self._socket.close()
            self._waker.close()

    def abandon(self) -> None:
        """Free what a control that never ran holds."""
        self._socket.close(linger_ms=0)
        self._waker.close()

    def drain(self) -> None:
        """Take no new sessions; end when what was read has left, or its time is up."""
        self._draining = True
        self._drain_until_ns = self._clock.monotonic_ns() + self._config.drain_timeout
        for client in self._clients.values():
            if client.stream is not None:
                self._streams.finish(client.stream)
        _LOG.info("draining: %d sessions, no new ones", len(self._clients))

    def stop(self) -> None:
        """End now."""
        self._stop = True

    # ---- receiving ------------------------------------------------------------------------------------------------

    def _timeout_ms(self) -> int | None:
        deadlines = [client.machine.deadline_ns() for client in self._clients.values()]
        if self._draining:
            now_ns = self._clock.monotonic_ns()
            streams = [client.stream for client in self._clients.values() if client.stream is not None]
            if now_ns >= self._drain_until_ns or not any(stream.in_flight_bytes for stream in streams):
                self._stop = True
                return 0
            deadlines.append(now_ns + 20_000_000)
        if not deadlines:
            return None
        return max(0, (min(deadlines) - self._clock.monotonic_ns()) // 1_000_000 + 1)

    def _on_message(self, identity: bytes, data: bytes) -> None:
        client = self._clients.get(identity)
        try:
            message = decode_control(data)
        except RemoteProtocolError as error:
            self._complain(client.label if client else "a stranger", error)
            if client is not None:
                self._carry_out(client, client.machine.refuse("protocol", str(error)))
            else:
                self._send(identity, Refused(code="protocol", text=str(error)))
            return
        match message:
            case Hello():
                self._greet(identity, message)
            case Ping() if client is not None and client.stream is not None:
                client.machine.receive(message, self._clock.monotonic_ns())
                totals = self._streams.totals(client.stream)
                self._send(
                    identity,
                    Pong(
                        nonce=message.nonce,
                        sent_bytes=totals.sent_bytes,
                        blocked_ns=totals.blocked_ns,
                        starved_ns=totals.starved_ns,
                    ),
                )
            case Ping() if client is None and message.session == 0:
                self._send(identity, Pong(nonce=message.nonce))
            case _ if client is None:
                self._send(identity, Refused(code="no-session", text="there is no such session here: say hello first"))
            case _:
                self._carry_out(client, client.machine.receive(message, self._clock.monotonic_ns()))

    def _complain(self, who: str, error: RemoteProtocolError) -> None:
        now_ns = self._clock.monotonic_ns()
        if self._complained_ns is not None and now_ns - self._complained_ns < _COMPLAIN_EVERY_NS:
            self._nonsense += 1
            return
        more = f" ({self._nonsense} more since the last such line)" if self._nonsense else ""
        self._nonsense, self._complained_ns = 0, now_ns
        _LOG.warning("a control message from %s was not understood: %s%s", who, error, more)

    def _greet(self, identity: bytes, hello: Hello) -> None:
        if identity in self._clients:
            client = self._clients[identity]
            self._carry_out(client, client.machine.refuse("protocol", "a connection must say hello once"))
            return
        try:
            if self._draining:
                raise RefusedError(_LEAVING, code="draining")
            if not hello.rank < hello.world_size:
                raise RefusedError(
                    f"rank must be in [0, {hello.world_size}), got {hello.rank}", code="rank-out-of-range"
                )
            served = self._library.find(hello.dataset)
        except RefusedError as error:
            self._send(identity, Refused(code=error.code, text=str(error)))
            return
        except DatasetError as error:
            self._send(identity, Refused(code="dataset-changed", text=str(error)))
            return
        missing = served.dataset.missing
        welcome = Welcome(
            session=self._next_session,
            daemon=self._name,
            software=__version__,
            shards=len(served.rows),
            records=served.catalog.records,
            missing=list(missing[:_MISSING_NAMED]),
            missing_count=len(missing),
            heartbeat_timeout_ns=self._config.heartbeat_timeout,
            send_buffer_bytes=send_buffer_bytes(),
            max_lanes=MAX_LANES,
        )
        self._next_session += 1
        machine = DaemonSession(
            hello=hello,
            welcome=welcome,
            rows=served.rows,
            heartbeat_timeout_ns=self._config.heartbeat_timeout,
            now_ns=self._clock.monotonic_ns(),
        )
        label = f"session {welcome.session} (rank {hello.rank}/{hello.world_size} of {hello.dataset}, {hello.host}:{hello.pid})"
        client = _Client(identity=identity, machine=machine, served=served, label=label)
        self._clients[identity] = client
        _LOG.info("%s begins", label)
        self._carry_out(client, machine.begin())

    # ---- carrying out ---------------------------------------------------------------------------------------------

    def _send(self, identity: bytes, message: ControlMessage) -> None:
        self._socket.send(identity, encode_control(message))

    def _say_what_left(self, client: _Client) -> None:
        """The last word before goodbye: how much is still on its way, so that the rank can wait for it."""
        stream = client.stream
        if stream is None:
            return
        sent = self._streams.totals(stream).sent_bytes
        if stream.in_flight_bytes:
            _LOG.warning("%s not drained: %s bytes did not leave in time", client.label, f"{stream.in_flight_bytes:,}")
            sent = 0  # what is in the lanes is dropped with them: nothing can be promised
        else:
            _LOG.info("%s drained: %s bytes sent", client.label, f"{sent:,}")
        self._send(client.identity, Pong(nonce=0, sent_bytes=sent))

    def _carry_out(self, client: _Client, instructions: Sequence[DaemonInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Send(message=message):
                    self._send(client.identity, message)
                case Judge():
                    self._judge(client, instruction)
                case LookUpSizes(shard=shard, first=first, count=count):
                    self._send(client.identity, client.served.sizes(shard, first, count))
                case StartStream(order=order):
                    self._start(client, order)
                case StopStream():
                    self._stop_stream(client)
                case Ended(reason=reason):
                    if self._clients.pop(client.identity, None) is not None:
                        _LOG.info("%s ended: %s", client.label, reason)

    def _judge(self, client: _Client, judge: Judge) -> None:
        machine = client.machine
        name, world_size = machine.hello.dataset, machine.hello.world_size
        try:
            client.agreed = self._library.judge(name, judge.offer, world_size, judge.rows)
        except EmlioError as error:
            self._carry_out(client, machine.refuse("plan-refused", str(error)))
            return
        self._carry_out(client, machine.agree() if client.agreed is not None else machine.ask_catalog())

    def _start(self, client: _Client, order: Open) -> None:
        agreed, machine = client.agreed, client.machine
        if agreed is None:
            self._carry_out(client, machine.refuse("protocol", "a stream must be opened after a plan is agreed"))
            return
        if self._draining:
            self._carry_out(client, machine.refuse("draining", _LEAVING))
            return

        def on_bound(stream: Stream, ports: Sequence[int]) -> None:
            self.call(lambda: self._on_bound(client, stream, ports))

        def on_failure(error: EmlioError) -> None:
            self.call(lambda: self._carry_out(client, machine.refuse("no-lane", str(error))))

        try:
            client.stream = self._streams.open(
                served=client.served,
                agreed=agreed,
                machine=machine,
                order=order,
                label=client.label,
                on_bound=on_bound,
                on_failure=on_failure,
            )
        except EmlioError as error:
            self._carry_out(client, machine.refuse("bad-order", str(error)))

    def _on_bound(self, client: _Client, stream: Stream, ports: Sequence[int]) -> None:
        if client.stream is stream:
            self._carry_out(client, client.machine.opened(stream.stream, ports))

    def _stop_stream(self, client: _Client) -> None:
        stream, client.stream = client.stream, None
        if stream is not None:
            self._streams.stop(stream)

    def _let_go(self, path: Path, borrowers: Collection[Borrower]) -> None:
        """Somebody waits to write to this file, and ranks do not take what was lent of it: end their streams."""
        error = DatasetError(
            f"a shard must not change while it is served: another process waits to write to {path}, and this rank did not "
            "take what was sent of it in time"
        )
        for client in list(self._clients.values()):
            if client.stream is not None and any(client.stream is borrower for borrower in borrowers):
                self._on_failure(StreamFailure(stream=client.stream, error=error))
                self._stop_stream(client)

    def _hear_failure(self, failure: StreamFailure) -> None:
        self.call(lambda: self._on_failure(failure))

    def _on_failure(self, failure: StreamFailure) -> None:
        stream, error = failure.stream, failure.error
        for client in self._clients.values():
            if client.stream is stream:
                _LOG.error("%s: %s", client.label, error)
                self._send(client.identity, _fault(stream.stream, error))


def _fault(stream: int, error: EmlioError) -> Fault:
    if isinstance(error, CorruptRecordError):
        return Fault(
            stream=stream,
            code="corrupt-record",
            text=str(error),
            shard=error.shard,
            record=error.record,
            offset=error.offset,
        )
    return Fault(stream=stream, code="dataset" if isinstance(error, DatasetError) else "internal", text=str(error))
