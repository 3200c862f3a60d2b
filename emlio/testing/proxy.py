"""A TCP proxy between ranks and one daemon that does to their connections what networks do.

A daemon tells ranks the numbers of its data ports, so the proxy offers the same numbers on another address of this machine:

    daemon 127.0.0.1:CONTROL, --data-ports A-B    <-    proxy 127.0.0.2:CONTROL and 127.0.0.2:A ... B    <-    ranks

Covers: the listening ports, faults on demand from any thread, counts of what took place, keeping all that was said. Does not
cover: what a fault does to one connection (emlio.testing.proxied_connection), one message instead of bytes
(emlio.testing.link).
"""

import errno
import random
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from selectors import EVENT_READ, DefaultSelector
from threading import Lock, Thread
from types import TracebackType
from typing import Self

from emlio.errors import ClosedError
from emlio.testing.proxied_connection import Connection, Wire
from emlio.testing.traffic import Course, Mark, Pace
from emlio.waker import Waker

__all__ = ["FaultProxy", "free_ports"]

_BACKLOG = 512
_CONNECTING = (0, errno.EINPROGRESS)
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
"""Below those that the system gives to whoever asks for any port, or connects."""

_TRIES = 200

_ORDER_S = 20.0
"""How long the proxy's thread may take to hear an order, on a machine whose cores are busy with other things."""


class FaultProxy:
    """See the module. It listens once it is made; `close` ends it and every connection through it.

    Its methods may be called from any thread, and have taken effect when they return.

    Attributes:
        ports: the control port, then the data ports; the same at both addresses.
        host: the address it listens on.
    """

    def __init__(self, *, target: str, ports: Sequence[int], host: str, keeps: bool = False) -> None:
        """See the class.

        Args:
            target: the daemon's address, without a port.
            ports: the daemon's control port, then its data ports.
            host: another address of this machine, such as 127.0.0.2.
            keeps: keep every byte that comes, for `heard`.
        """
        if not ports:
            raise ValueError("ports must name at least the control port, got none")
        self.ports = tuple(ports)
        self.host = host
        self._target = target
        self._selector = DefaultSelector()
        self._asleep = DefaultSelector()
        self._waker = Waker()
        self._wire = Wire(self._selector, keeps=keeps)
        self._listeners: list[socket.socket] = []
        self._orders: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._lock = Lock()
        self._stalled = False
        self._closed = False
        self._error: Exception | None = None
        try:
            for selector in (self._selector, self._asleep):
                selector.register(self._waker, EVENT_READ, self._heard)
            for port in self.ports:
                self._listen(port)
        except BaseException:
            self._free()
            raise
        self._thread = Thread(target=self._run, name="emlio-proxy", daemon=True)
        self._thread.start()

    # ---- faults ---------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """From now on bytes of both directions vanish, and so do ends of connections; new connections are swallowed."""
        self._order(self._drop)

    def stall(self) -> None:
        """From now on nothing is read or forwarded, so that senders fill up; nothing is lost."""
        self._order(self._stall)

    def slow(self, bytes_per_s: float) -> None:
        """From now on all bytes from the daemon together go at this rate."""
        pace = Pace(bytes_per_s, time.monotonic_ns())
        self._order(lambda: self._slow(pace))

    def reset(self) -> None:
        """Reset every open connection on both sides, once."""
        self._order(self._reset)

    def half_open(self) -> None:
        """Reset the daemon's side of every open connection, once; the rank's stays open and silent until the rank ends it."""
        self._order(self._half_open)

    def cut_after(self, data_bytes: int) -> None:
        """After so many more bytes from the daemon over data ports, reset the connection that carries the last of them, once."""
        mark = Mark(course=Course.DATA, left=data_bytes, mask=0)
        self._order(lambda: self._wire.marks.add(mark))

    def corrupt_after(
        self, data_bytes: int, *, control: bool = False, to_daemon: bool = False, mask: int = 0x01
    ) -> None:
        """After so many more bytes turn some bits of the next one, once.

        Args:
            data_bytes: bytes from the daemon over data ports.
            control: count and change those over the control port instead.
            to_daemon: count and change those from ranks, over any port, instead.
            mask: which bits.
        """
        if not mask:
            raise ValueError("a mask must turn at least one bit, got 0")
        course = Course.TO_DAEMON if to_daemon else Course.CONTROL if control else Course.DATA
        mark = Mark(course=course, left=data_bytes, mask=mask)
        self._order(lambda: self._wire.marks.add(mark))

    def heal(self) -> None:
        """Be faithful again, and forget what was still to happen. Connections that lost bytes are reset, others go on."""
        self._order(self._heal)

    # ---- what took place ------------------------------------------------------------------------------------------

    @property
    def faults(self) -> Counter[str]:
        """How often each really took place, by the name of its method.

        `reset`, `half_open`: connections it hit. `drop`: connections that lost something. `cut_after`, `corrupt_after`: those
        whose byte was reached. `stall`, `slow`: calls.
        """
        return Counter(self._wire.faults)

    @property
    def forwarded_bytes(self) -> int:
        """Bytes from the daemon that went to ranks."""
        return self._wire.forwarded_bytes

    @property
    def heard(self) -> Sequence[tuple[Course, bytes]]:
        """What came so far of each connection and each way, as it came, before any fault; none of it unless that is kept."""
        return [(course, bytes(data)) for course, data in self._wire.heard or ()]

    @property
    def connections(self) -> int:
        """Open now."""
        return len(self._wire.connections)

    # ---- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closed:
                self._turn()
        except Exception as error:  # noqa: BLE001  # whoever uses the proxy must hear of it, whatever it is
            self._error = error
        finally:
            with self._lock:
                self._closed = True
            self._free()
            while self._orders:
                self._orders.popleft()[1].set_exception(self._ended())

    def _turn(self) -> None:
        if self._stalled:
            selector, timeout_s = self._asleep, None
        else:
            selector, timeout_s = self._selector, self._pause_s()
        for key, events in selector.select(timeout_s):
            key.data(events)
        paused = self._wire.paused
        # Each in turn takes what may go; the others keep their places.
        for connection in list(paused):
            if self._wire.pace is not None and not self._wire.pace.allowed(time.monotonic_ns()):
                break
            paused.pop(connection, None)
            connection.go_on()

    def _pause_s(self) -> float | None:
        pace = self._wire.pace
        return pace.pause_s if pace is not None and self._wire.paused else None

    def _heard(self, _: int) -> None:
        self._waker.rest()
        while self._orders:
            action, done = self._orders.popleft()
            try:
                action()
            except BaseException as error:
                done.set_exception(error)
                raise
            done.set_result(None)

    def _order(self, action: Callable[[], None]) -> None:
        done: Future[None] = Future()
        with self._lock:
            if self._closed:
                raise self._ended()
            self._orders.append((action, done))
        self._waker.wake()
        done.result(_ORDER_S)

    def _ended(self) -> ClosedError:
        error = ClosedError("the proxy is closed" if self._error is None else f"the proxy failed: {self._error!r}")
        error.__cause__ = self._error
        return error

    # ---- orders ---------------------------------------------------------------------------------------------------

    def _drop(self) -> None:
        self._wire.dropping = True
        for connection in list(self._wire.connections):
            connection.vanish()

    def _stall(self) -> None:
        self._stalled = True
        self._wire.faults["stall"] += 1

    def _slow(self, pace: Pace) -> None:
        self._wire.pace = pace
        self._wire.faults["slow"] += 1

    def _reset(self) -> None:
        for connection in list(self._wire.connections):
            connection.reset()
            self._wire.faults["reset"] += 1

    def _half_open(self) -> None:
        for connection in list(self._wire.connections):
            self._wire.faults["half_open"] += connection.half_open()

    def _heal(self) -> None:
        self._wire.dropping = self._stalled = False
        self._wire.pace = None
        self._wire.marks.clear()
        self._wire.paused.clear()
        for connection in list(self._wire.connections):
            connection.heal()

    # ---- connections ----------------------------------------------------------------------------------------------

    def _listen(self, port: int) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listeners.append(listener)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind((self.host, port))
        listener.listen(_BACKLOG)
        course = Course.CONTROL if port == self.ports[0] else Course.DATA
        self._selector.register(listener, EVENT_READ, partial(self._accept, listener, port, course))

    def _accept(self, listener: socket.socket, port: int, course: Course, _: int) -> None:
        try:
            rank, _from = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # whoever came has left again
        rank.setblocking(False)
        rank.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        daemon = None
        if not self._wire.dropping:
            daemon = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            daemon.setblocking(False)
            daemon.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            refused = daemon.connect_ex((self._target, port)) not in _CONNECTING
        else:
            refused = False
        connection = Connection(rank, daemon, course, self._wire)
        if refused:
            connection.reset()

    # ---- the end --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Reset every connection and free the ports. Closing again does nothing."""
        with self._lock:
            self._closed = True
        self._waker.wake()
        self._thread.join()

    def _free(self) -> None:
        for listener in self._listeners:
            listener.close()
        for connection in list(self._wire.connections):
            connection.reset()
        self._selector.close()
        self._asleep.close()
        self._waker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def free_ports(count: int, *hosts: str) -> range:
    """Neighbouring ports that nobody listens on at any of these addresses now.

    Raises:
        OSError: none were found; the cause says what was wrong with the last.
    """
    draw = random.Random()
    reason = None
    for _ in range(_TRIES):
        first = draw.randrange(_FIRST_PORT, _LAST_PORT - count)
        ports = range(first, first + count)
        with ExitStack() as stack:
            try:
                for host in hosts:
                    for port in ports:
                        probe = stack.enter_context(socket.socket())
                        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                        probe.bind((host, port))
            except OSError as error:
                reason = error
                continue
        return ports
    raise OSError(
        f"{count} neighbouring ports must be free at {', '.join(hosts)}, found none in {_TRIES} tries"
    ) from reason
