"""A TCP proxy between ranks and one daemon that injects network faults.

It listens on another address of this machine, at the daemon's two ports or at two others with the
same distance: a daemon tells ranks the distance of its data port from its control port.

    daemon 127.0.0.1:P and P+1    <-    proxy 127.0.0.2:Q and Q+1    <-    ranks
"""

import errno
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from selectors import EVENT_READ, DefaultSelector
from threading import Lock, Thread
from types import TracebackType
from typing import Self

from emlio.errors import ClosedError
from emlio.waker import Waker
from emlio_testing.ports import free_ports
from emlio_testing.proxied_connection import Connection, Wire
from emlio_testing.traffic import Course, Mark, Pace

__all__ = ["FaultProxy", "free_ports"]

_BACKLOG = 512
_CONNECTING = (0, errno.EINPROGRESS)
_ORDER_S = 20.0
"""The time in which the proxy's thread must carry out an order, on a machine whose cores are
busy."""


class FaultProxy:
    """A fault-injecting proxy. It listens once it is made; `close` ends it and all connections.

    Its methods may be called from any thread, and have taken effect when they return.

    Attributes:
        ports: the ports for ranks: the control port, then the data ports.
        host: the address it listens on.
    """

    def __init__(
        self,
        *,
        target: str,
        ports: Sequence[int],
        host: str,
        offered: Sequence[int] | None = None,
        keeps: bool = False,
    ) -> None:
        """See the class.

        Args:
            target: the daemon's address, without a port.
            ports: the daemon's control port, then its data ports.
            host: another address of this machine, such as 127.0.0.2.
            offered: the port for ranks of each of them; by default the same numbers. If there are
                fewer than `ports`, the last of those have no listener.
            keeps: whether to keep every byte that comes, for `heard`.
        """
        if not ports:
            raise ValueError("ports must name at least the control port, got none")
        self.ports = tuple(ports if offered is None else offered)
        self.host = host
        self._target = target
        self._selector = DefaultSelector()
        self._asleep = DefaultSelector()
        self._waker = Waker()
        self._wire = Wire(self._selector, keeps=keeps)
        self._targets = dict(zip(self.ports, ports, strict=False))
        self._listeners: dict[int, socket.socket] = {}
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

    def drop(self, *, control: bool = True) -> None:
        """Drop the bytes of both directions from now on, and ends of connections, too.

        New connections are accepted, and their bytes dropped.

        Args:
            control: whether to drop those of the control port, too.
        """
        courses = frozenset({Course.DATA, Course.CONTROL} if control else {Course.DATA})
        self._order(lambda: self._drop(courses))

    def refuse(self) -> None:
        """Stop listening at the data ports. Open connections continue."""
        self._order(self._refuse)

    def cut_lane(self, place: int) -> None:
        """Reset one open lane by its position, 0 for the oldest; do nothing if there is none."""
        self._order(lambda: self._cut_lanes(slice(place, place + 1)))

    def cut_lanes(self) -> None:
        """Reset every open lane, once."""
        self._order(lambda: self._cut_lanes(slice(None)))

    def drop_lane(self, place: int) -> None:
        """Drop all that comes over one lane from now on; see `cut_lane`."""
        self._order(lambda: self._drop_lane(place))

    def hold_credit(self) -> None:
        """Hold back what ranks send over data ports from now on; nothing is lost."""
        self._order(self._hold_credit)

    def stall(self) -> None:
        """Read and forward nothing from now on, so that senders fill up; nothing is lost."""
        self._order(self._stall)

    def slow(self, bytes_per_s: float) -> None:
        """Limit all bytes from the daemon together to this rate from now on."""
        pace = Pace(bytes_per_s, time.monotonic_ns())
        self._order(lambda: self._slow(pace))

    def reset(self) -> None:
        """Reset every open connection on both sides, once."""
        self._order(self._reset)

    def half_open(self) -> None:
        """Reset the daemon's side of every open connection, once.

        The rank's side stays open and silent until the rank ends it.
        """
        self._order(self._half_open)

    def cut_after(self, data_bytes: int) -> None:
        """Reset a lane after so many more bytes from the daemon over data ports, once.

        The lane is the one that carries the last of these bytes.
        """
        mark = Mark(course=Course.DATA, left=data_bytes, mask=0)
        self._order(lambda: self._wire.marks.add(mark))

    def corrupt_after(
        self, data_bytes: int, *, control: bool = False, to_daemon: bool = False, mask: int = 0x01
    ) -> None:
        """Flip some bits of the byte after so many more bytes, once.

        Args:
            data_bytes: the number of bytes from the daemon over data ports.
            control: count and change bytes over the control port instead.
            to_daemon: count and change bytes from ranks instead.
            mask: the bits to flip.
        """
        if not mask:
            raise ValueError("a mask must turn at least one bit, got 0")
        if control:
            course = Course.TO_DAEMON if to_daemon else Course.CONTROL
        else:
            course = Course.CREDIT if to_daemon else Course.DATA
        mark = Mark(course=course, left=data_bytes, mask=mask)
        self._order(lambda: self._wire.marks.add(mark))

    def heal(self) -> None:
        """End all faults, and forget those still to come.

        Connections that lost bytes are reset, others continue.
        """
        self._order(self._heal)

    # ---- counts -----------------------------------------------------------------------------------------------------

    @property
    def faults(self) -> Counter[str]:
        """The number of faults that took place, by the name of the method.

        `reset`, `half_open`, `cut_lane`: affected connections. `drop`: connections that lost bytes.
        `cut_after`, `corrupt_after`: faults whose byte was reached. `stall`, `slow`, `hold_credit`:
        calls.
        """
        return Counter(self._wire.faults)

    @property
    def forwarded_bytes(self) -> int:
        """The bytes from the daemon that were sent to ranks."""
        return self._wire.forwarded_bytes

    @property
    def heard(self) -> Sequence[tuple[Course, bytes]]:
        """The data of each connection and direction, before any fault; empty if not kept."""
        return [(course, bytes(data)) for course, data in self._wire.heard or ()]

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._wire.connections)

    @property
    def lanes(self) -> int:
        """The number of open connections over data ports."""
        return len(self._open_lanes)

    @property
    def _open_lanes(self) -> list[Connection]:
        return [connection for connection in list(self._wire.connections) if connection.is_lane]

    # ---- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closed:
                self._turn()
        except Exception as error:  # noqa: BLE001  # raised in callers of the proxy
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
        # Each in turn sends what the pace allows; the others keep their positions.
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

    def _drop(self, courses: frozenset[Course]) -> None:
        self._wire.dropping |= courses
        for connection in list(self._wire.connections):
            if connection.is_lane or Course.CONTROL in courses:
                connection.vanish()

    def _refuse(self) -> None:
        for port in self.ports[1:]:
            listener = self._listeners.pop(port, None)
            if listener is not None:
                self._selector.unregister(listener)
                listener.close()

    def _cut_lanes(self, places: slice) -> None:
        for connection in self._open_lanes[places]:
            connection.reset()
            self._wire.faults["cut_lane"] += 1

    def _drop_lane(self, place: int) -> None:
        for connection in self._open_lanes[place : place + 1]:
            connection.vanish(for_good=True)

    def _hold_credit(self) -> None:
        self._wire.held = frozenset({Course.CREDIT})
        self._wire.faults["hold_credit"] += 1

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
        self._wire.dropping, self._wire.held, self._stalled = frozenset(), frozenset(), False
        self._wire.pace = None
        self._wire.marks.clear()
        self._wire.paused.clear()
        for connection in list(self._wire.connections):
            connection.heal()
        for port in self.ports:
            if port not in self._listeners:
                self._listen(port)

    # ---- connections ----------------------------------------------------------------------------------------------

    def _listen(self, port: int) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listeners[port] = listener
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind((self.host, port))
        listener.listen(_BACKLOG)
        course = Course.CONTROL if port == self.ports[0] else Course.DATA
        self._selector.register(listener, EVENT_READ, partial(self._accept, listener, port, course))

    def _accept(self, listener: socket.socket, port: int, course: Course, _: int) -> None:
        if self._listeners.get(port) is not listener:
            return  # an order of the same turn has closed it
        try:
            rank, _from = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # the peer has already closed the connection
        rank.setblocking(False)
        rank.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        daemon = None
        if course not in self._wire.dropping:
            daemon = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            daemon.setblocking(False)
            daemon.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            refused = daemon.connect_ex((self._target, self._targets[port])) not in _CONNECTING
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
        for listener in self._listeners.values():
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
