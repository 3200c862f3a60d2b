"""The thread that answers libzmq's question whether somebody may connect.

Covers: asking the gate, saying in the log who was turned away, not too often. Does not cover: the decision (emlio.daemon.gate),
the socket (emlio.daemon.transport).
"""

import logging
from threading import Thread

from emlio.clock import Clock
from emlio.daemon.complaints import Complaints
from emlio.daemon.gate import Gate
from emlio.daemon.transport import Doorbell, Waiter
from emlio.waker import Waker

__all__ = ["Doorkeeper"]

_LOG = logging.getLogger("emlio.daemon.gate")

_KNOCKS_A_TURN = 64


class Doorkeeper:
    """Owns the doorbell and its thread. Runs from its making on: no socket that asks may be bound before."""

    def __init__(self, gate: Gate, doorbell: Doorbell, clock: Clock) -> None:
        self._gate = gate
        self._doorbell = doorbell
        self._clock = clock
        self._waker = Waker()
        self._stop = False
        self._complaints = Complaints(_LOG)
        self._thread = Thread(target=self._run, name="emlio-gate", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        waiter = Waiter(self._waker)
        try:
            while not self._stop:
                waiter.wait(None, doorbell=self._doorbell)
                for _ in range(_KNOCKS_A_TURN):
                    knock = self._doorbell.receive()
                    if knock is None:
                        break
                    now_ns = self._clock.monotonic_ns()
                    verdict = self._gate.judge(knock, now_ns)
                    self._doorbell.answer(verdict)
                    if not verdict.admitted:
                        text = f"{knock.address} is turned away at the {knock.door} port: {verdict.reason}"
                        self._complaints.add(text, now_ns)
        finally:
            self._doorbell.close()

    def close(self) -> None:
        """End the thread. Sockets that ask must be closed before: nobody answers them any more."""
        self._stop = True
        self._waker.wake()
        self._thread.join()
        self._waker.close()
