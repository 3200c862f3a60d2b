"""The control thread: it waits, reads control messages, and ends.

Does not cover: sessions (emlio.daemon.control.session_host).
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from emlio.clock import Clock
from emlio.daemon.access.permissions import Permissions
from emlio.daemon.config import DaemonConfig
from emlio.daemon.control.admission import Admission
from emlio.daemon.control.answers import Identity
from emlio.daemon.control.arrivals import Arrivals
from emlio.daemon.control.session_host import SessionHost
from emlio.daemon.control.session_log import SessionLog
from emlio.daemon.control.status.report import DaemonFigures
from emlio.daemon.control.status.service import StatusService
from emlio.daemon.datasets.collection import Datasets
from emlio.daemon.datasets.inspections import Inspections
from emlio.daemon.failures import Failures
from emlio.daemon.limits import MOST_REST_NS, MOST_TURN_NS
from emlio.daemon.network.transport import ControlSocket, Network, Received, Waiter
from emlio.daemon.network.zap_thread import ZapThread
from emlio.daemon.ranks.claims import Caller
from emlio.daemon.reading.stream import StreamFailure
from emlio.daemon.streams import Streams
from emlio.errors import RemoteProtocolError
from emlio.waker import Waker
from emlio.wire.control import (
    Hello,
    Ping,
    Pong,
    StatusReply,
    StatusRequest,
    decode_control,
)

__all__ = ["INTERNAL", "Control", "DutyCycle", "guarded"]

_LOG = logging.getLogger("emlio.daemon")

INTERNAL = "internal error, see the daemon's log"


def guarded(action: Callable[[], None], instead: Callable[[], None] = lambda: None) -> None:
    """Run `action` in the control thread; if it raises, log the error and run `instead`."""
    try:
        action()
    except Exception:  # noqa: BLE001  # a defect must not end the thread that all sessions share
        _LOG.exception("internal error in the control thread")
        instead()


class DutyCycle:
    """A limit that gives messages at most half of the thread's time, however many come."""

    def __init__(self) -> None:
        self._began_ns = 0
        self._rest_until_ns = 0

    def begin(self, now_ns: int) -> bool:
        """Return whether messages may be read now; if so, a turn begins."""
        self._began_ns = now_ns
        return now_ns >= self._rest_until_ns

    def over(self, now_ns: int) -> bool:
        """Return whether the turn is used up, though more may be waiting.

        After such a turn, the thread pauses for as long as it has read.
        """
        took_ns = now_ns - self._began_ns
        if took_ns < MOST_TURN_NS:
            return False
        self._rest_until_ns = now_ns + min(took_ns, MOST_REST_NS)
        return True

    def rest_ns(self, now_ns: int) -> int:
        """Return the rest of the pause; 0 if messages may be read now."""
        return max(self._rest_until_ns - now_ns, 0)

    def deadline_ns(self, now_ns: int) -> int | None:
        """Return the end of the pause; None if messages may be read now."""
        return self._rest_until_ns if now_ns < self._rest_until_ns else None


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
        self._clock = clock
        self._admission = Admission(config, datasets, permissions)
        self._socket: ControlSocket = network.control()
        self._waker = Waker()
        self._calls: deque[Callable[[], None]] = deque()
        try:
            self._streams = Streams(
                config,
                network.lanes(config.data_endpoint, self._socket.endpoint.port),
                zap_thread,
                clock,
                on_failure=self._on_failure,
                on_fault=self._on_fault,
                shared=datasets.shared,
            )
        except BaseException:
            self._socket.close(linger_ms=0)
            self._waker.close()
            raise
        datasets.when_stuck(lambda path, borrowers: self.call(lambda: self._host.let_go(path, borrowers)))
        identity, inspections = Identity(), Inspections(clock, self.call)
        self._host = SessionHost(
            config,
            datasets,
            permissions,
            self._admission,
            inspections,
            self._streams,
            self._socket,
            identity,
            SessionLog(failures, clock),
            clock,
            self.call,
        )
        self._status = StatusService(
            config, datasets, permissions, self._admission, self._streams, identity, failures, clock
        )
        self._status.local = network.local_status(self._socket.endpoint)
        self._arrivals = Arrivals(self._admission, inspections, self._host.send, self._host.admit, clock, failures)
        self._turns = DutyCycle()
        self._drain_timeout_ns = config.drain_timeout
        self._drain_until_ns = 0
        self._stop = False

    @property
    def endpoint(self) -> str:
        """The endpoint of the control port, with the real port."""
        return str(self._socket.endpoint)

    def figures(self) -> DaemonFigures:
        """Return the figures for metrics. Only for the control thread, see `call`."""
        clients, begun = self._host.clients.values(), self._host.log.begun
        return self._status.report.figures(clients, begun=begun, draining=self._admission.is_draining)

    def status(self) -> StatusReply:
        """Return the status, with all datasets and jobs. Only for the control thread, see `call`."""
        clients = self._host.clients.values()
        return self._status.report.reply(0, clients, lambda _: True, draining=self._admission.is_draining)

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
                self._host.turn()
                self._host.tick(self._clock.monotonic_ns())
        finally:
            self._host.close()
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
        self._admission.is_draining = True
        self._drain_until_ns = self._clock.monotonic_ns() + self._drain_timeout_ns
        self._host.drain()

    def stop(self) -> None:
        """End without waiting."""
        self._stop = True

    # ---- from other threads -------------------------------------------------------------------------------------------

    def _on_failure(self, failure: StreamFailure) -> None:
        self.call(lambda: self._host.failed(failure))

    def _on_fault(self, session: int, error: RemoteProtocolError) -> None:
        self.call(lambda: self._host.misbehaved(session, error))

    # ---- receiving ------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        if not self._turns.begin(self._clock.monotonic_ns()):
            return
        guarded(partial(self._status.hear, self._host.clients.values()))
        while (received := self._socket.receive()) is not None:
            refuse = partial(self._refuse, received.connection, "internal", INTERNAL)
            guarded(partial(self._on_message, received), refuse)
            if self._turns.over(self._clock.monotonic_ns()):
                return

    def _timeout_ms(self) -> int | None:
        now_ns = self._clock.monotonic_ns()
        others = (*self._host.deadlines_ns(now_ns), self._turns.deadline_ns(now_ns))
        deadlines = [at for at in others if at is not None]
        if self._admission.is_draining:
            # Wait until all is read: closing a connection with unread data here drops what the rank has not read.
            if now_ns >= self._drain_until_ns or self._host.is_drained:
                self._stop = True
                return 0
            deadlines.append(now_ns + 20_000_000)
        if not deadlines:
            return None
        return max(0, (min(deadlines) - now_ns) // 1_000_000 + 1)

    def _on_message(self, received: Received) -> None:
        identity, heard_ns = received.connection, self._clock.monotonic_ns()
        client = self._host.clients.get(identity)
        try:
            message = decode_control(received.data)
        except RemoteProtocolError as error:
            self._host.log.invalid(received, client, error)
            self._refuse(identity, "protocol", str(error))
            return
        waits = client is not None or self._arrivals.waits(identity) or self._host.waits(identity)
        match message:
            case Hello() if waits:
                self._refuse(identity, "protocol", "a connection must send hello once, got a second one")
            case Hello():
                caller = Caller(connection=identity, hello=message, address=received.address, key=received.key)
                self._arrivals.greet(caller)
            case _ if client is not None:
                self._host.hear(client, message, received, heard_ns)
            case StatusRequest():
                self._status.answer(message, received, self._host.clients.values(), self._socket.send)
            case Ping() if message.session == 0:
                self._host.send(identity, Pong(nonce=message.nonce))
            case _:
                self._refuse(identity, "no-session", "no session on this connection: send hello first")

    def _refuse(self, identity: bytes, code: str, text: str) -> None:
        """End everything with this peer, and send the reason."""
        self._arrivals.gone(identity)
        self._host.refuse(identity, code, text)
