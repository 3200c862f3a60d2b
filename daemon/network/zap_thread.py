"""The thread that answers libzmq's questions whether a peer may connect.

Covers: asking the gates, answering held requests, logging refusals at a limited rate. Does not
cover: the decisions (emlio.daemon.access.gate, emlio.daemon.access.lane_gate), the socket
(emlio.daemon.network.authentication_socket).
"""

import logging
from collections.abc import Callable
from threading import Thread

from emlio.clock import Clock
from emlio.daemon.access.descriptors import Descriptors
from emlio.daemon.access.gate import ConnectionRequest, Gate, Verdict
from emlio.daemon.access.lane_gate import DATA_PORT_NAME, Admitted, LaneGate, Refused
from emlio.daemon.access.rate_limited_log import RateLimitedLog
from emlio.daemon.network.authentication_socket import AuthenticationSocket
from emlio.daemon.network.transport import Waiter
from emlio.errors import TransportError
from emlio.thread_name import show_thread_name
from emlio.waker import Waker

__all__ = ["ZapThread"]

_LOG = logging.getLogger("emlio.daemon.gate")

_KNOCKS_A_TURN = 64

OnAdmitted = Callable[[str, int], str | None]


class ZapThread:
    """Owns the ZAP socket and its thread.

    The constructor starts the thread. It must be made before any socket is bound that asks.
    """

    def __init__(
        self,
        gate: Gate,
        authentication: AuthenticationSocket,
        clock: Clock,
        on_refused: Callable[[str, str], None] = lambda _kind, _reason: None,
    ) -> None:
        """See the class.

        Args:
            gate: decides about the control port.
            authentication: the socket on which libzmq asks.
            clock: for deadlines.
            on_refused: called by the thread with the kind of failure and the reason of each refusal that has one.
        """
        self._on_refused = on_refused
        self._gate = gate
        self._lanes = LaneGate()
        self._descriptors = Descriptors()
        self._authentication = authentication
        self._clock = clock
        self._on_admitted: OnAdmitted | None = None
        self._waker = Waker()
        self._stop = False
        self._complaints = RateLimitedLog(_LOG)
        self._thread = Thread(target=self._run, name="emlio-gate", daemon=True)
        self._thread.start()

    def when_admitted(self, on_admitted: OnAdmitted) -> None:
        """Set the function that this thread calls with each admitted lane's group and number.

        Set it before any session is expected. It may return a reason to refuse the lane all the
        same.
        """
        self._on_admitted = on_admitted

    def expect(self, group: str, secret: bytes) -> bool:
        """Admit lanes of a session that begins; return False if another session has this group.

        May be called by any thread.
        """
        expected = self._lanes.expect(group, secret)
        self._waker.wake()  # some of its requests may be held
        return expected

    def forget(self, group: str) -> None:
        """Admit no more lanes of a session. May be called by any thread."""
        self._lanes.forget(group)

    def _run(self) -> None:
        show_thread_name()
        waiter = Waiter(self._waker)
        try:
            while not self._stop:
                waiter.wait(self._timeout_ms(), self._authentication)
                for _ in range(_KNOCKS_A_TURN):
                    request = self._authentication.receive()
                    if request is None:
                        break
                    self._judge(request, self._clock.monotonic_ns())
                now_ns = self._clock.monotonic_ns()
                for request, answer in self._lanes.settle(now_ns):
                    self._answer_lane(request, answer, now_ns)
        finally:
            self._authentication.close()

    def _timeout_ms(self) -> int | None:
        due_ns = self._lanes.due_ns()
        return None if due_ns is None else max((due_ns - self._clock.monotonic_ns()) // 1_000_000 + 1, 0)

    def _judge(self, request: ConnectionRequest, now_ns: int) -> None:
        if request.port != DATA_PORT_NAME:
            self._answer(request, self._gate.judge(request), now_ns)
            return
        answer = self._lanes.judge(request, now_ns)
        if answer is not None:
            self._answer_lane(request, answer, now_ns)

    def _answer_lane(self, request: ConnectionRequest, answer: Admitted | Refused, now_ns: int) -> None:
        if isinstance(answer, Refused):
            self._answer(request, Verdict(admitted=False, reason=answer.reason), now_ns)
            return
        try:
            self._descriptors.take_lane()
        except TransportError as error:
            self._answer(request, Verdict(admitted=False, reason=str(error)), now_ns)
            return
        # Before the answer: nothing may come over a lane that the sending thread does not know yet.
        reason = self._on_admitted(answer.group, answer.number) if self._on_admitted is not None else None
        if reason is not None:
            self._answer(request, Verdict(admitted=False, reason=reason), now_ns)
            return
        self._answer(request, Verdict(admitted=True, user=f"{answer.group}.{answer.number}"), now_ns)

    def _answer(self, request: ConnectionRequest, verdict: Verdict, now_ns: int) -> None:
        """Answer, and log a refusal that has a reason, once a minute however often the peer tries."""
        self._authentication.answer(request, verdict)
        if not verdict.admitted and verdict.reason:
            text = f"a connection from {request.address} to the {request.port} port was refused: {verdict.reason}"
            facts = {"address": request.address, "port": request.port}
            self._complaints.add(text, now_ns, reason=text, facts=facts)
            self._on_refused("lane-refused" if request.port == DATA_PORT_NAME else "not-admitted", text)

    def close(self) -> None:
        """End the thread. Sockets that ask must be closed before: they get no answers any more."""
        self._stop = True
        self._waker.wake()
        self._thread.join()
        self._waker.close()
