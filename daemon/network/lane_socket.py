"""The ROUTER that carries the lanes of all ranks.

Covers: its options, sending to a lane by name, receiving credits, waiting, closing one connection.
Does not cover: admission (emlio.daemon.access.lane_gate), which lane gets which message
(emlio.daemon.lanes.sender).
"""

import os
import select
import socket as tcp
from collections.abc import Iterator
from enum import Enum, auto

import msgspec
import zmq

from emlio.daemon.access.lane_gate import DATA_PORT_NAME
from emlio.daemon.limits import MOST_LANE_FRAMES_QUEUED, UNREAD_MS
from emlio.errors import TransportError
from emlio.waker import Waker
from emlio.wire.limits import MAX_LANE_COMMAND_BYTES

__all__ = ["Connection", "Heard", "LaneSocket", "Outcome", "set_lane_options"]

_CREDITS_QUEUED = 64
"""Credits of one lane queued here. More wait at the rank."""

_BACKLOG = 4096
"""Connections that wait to be accepted: the lanes of all ranks of a job come at once."""


class Outcome(Enum):
    """The result of sending a frame.

    Attributes:
        SENT: the frame is queued.
        GONE: there is no connection of that name, or not yet.
        FULL: the queue of the lane is full.
    """

    SENT = auto()
    GONE = auto()
    FULL = auto()


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """A TCP connection of libzmq.

    Another connection may get the same descriptor later, so the peer's address is kept, too.

    Attributes:
        descriptor: the descriptor of libzmq's socket.
        peer: host and port of the peer.
    """

    descriptor: int
    peer: tuple[object, ...]


class Heard:
    """A message from a lane.

    Attributes:
        name: the lane's name.
        data: the message; empty if it has more than one frame.
    """

    __slots__ = ("_frame", "_port", "data", "name")

    def __init__(self, name: bytes, data: bytes, frame: zmq.Frame, port: int) -> None:
        self.name = name
        self.data = data
        self._frame = frame
        self._port = port

    def connection(self) -> Connection | None:
        """Return the connection over which the message came; None if it has ended.

        If the connection has ended and another one began, the descriptor may belong to the other
        one. Most of those are recognized: they are not of this port, or come from another host.
        """
        try:
            descriptor, host = int(self._frame.get(zmq.SRCFD)), str(self._frame.get("Peer-Address"))
        except (zmq.ZMQError, UnicodeDecodeError):
            return None
        found = _look_up(descriptor, self._port)
        return found if found is not None and found.peer[0] == host.partition("%")[0] else None


class LaneSocket:
    """The bound ROUTER. Used by one thread only.

    Attributes:
        port: the port it is bound to.
    """

    def __init__(self, socket: "zmq.Socket[bytes]", port: int) -> None:
        self._socket = socket
        self.port = port
        self._poll = select.poll()
        self._poll.register(int(socket.getsockopt(zmq.FD)), select.POLLIN)
        self._waker: Waker | None = None

    def send(self, name: bytes, frame: memoryview | bytes) -> Outcome:
        """Queue a frame for a lane.

        It is not copied: it must not change until nothing refers to it any more.
        """
        try:
            self._socket.send(name, zmq.DONTWAIT | zmq.SNDMORE)
        except zmq.Again:
            return Outcome.FULL
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return Outcome.GONE
            raise TransportError(f"sending on a lane failed: {error.strerror}") from error
        # The name was accepted, so the frame is, too. If the lane has gone since, libzmq drops it.
        self._socket.send(frame, zmq.DONTWAIT, copy=False)
        return Outcome.SENT

    def receive(self) -> Heard | None:
        """Return the next message of any lane; None if there is none."""
        if not self._has_message:  # an exception of pyzmq's costs as much as ten of these questions
            return None
        try:
            name = self._socket.recv(zmq.DONTWAIT)
        except zmq.Again:
            return None
        first = frame = self._socket.recv(zmq.DONTWAIT, copy=False)
        while frame.more:
            frame = self._socket.recv(zmq.DONTWAIT, copy=False)
        return Heard(name, first.bytes if first is frame else b"", first, self.port)

    def wait(self, waker: Waker, timeout_ms: int | None) -> None:
        """Return when a lane sent something or may have come up, `waker` woke, or time is up."""
        if self._waker is not waker:
            self._waker = waker
            self._poll.register(waker.fileno(), select.POLLIN)
        # The descriptor signals changes only, so ask for what was ready before.
        ready = self._poll.poll(0 if self._has_message else timeout_ms)
        if any(descriptor == waker.fileno() for descriptor, _ in ready):
            waker.rest()

    @property
    def _has_message(self) -> bool:
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def disconnect(self, connection: Connection) -> bool:
        """Close one connection, if it is still the same; libzmq then frees what is queued for it.

        A ROUTER has no operation for this.
        """
        if _look_up(connection.descriptor, self.port) != connection:
            return False
        try:
            lent = tcp.socket(fileno=connection.descriptor)
        except OSError:
            return False  # the connection has ended by itself, after the look
        try:
            lent.shutdown(tcp.SHUT_RDWR)
        except OSError:
            return False  # it has ended by itself
        finally:
            lent.detach()  # the socket still belongs to libzmq
        return True

    def is_connected(self, connection: Connection) -> bool:
        """Return whether the connection still exists."""
        return _look_up(connection.descriptor, self.port) == connection

    def connections(self) -> Iterator[Connection]:
        """Iterate over the connections of this port.

        Some may have ended before the next is asked for.
        """
        for name in os.listdir("/proc/self/fd"):
            found = _look_up(int(name), self.port)
            if found is not None:
                yield found

    def close(self) -> None:
        """Close all connections and free the port; what is queued is dropped."""
        self._socket.close(linger=0)


def set_lane_options(socket: "zmq.Socket[bytes]") -> None:
    """Set a lane ROUTER's options, in addition to those of all sockets; before it is bound."""
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # report an error when a lane is gone
    socket.setsockopt(zmq.ROUTER_HANDOVER, 0)  # no lane takes the name of another
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_LANE_COMMAND_BYTES)
    socket.setsockopt(zmq.SNDHWM, MOST_LANE_FRAMES_QUEUED)
    socket.setsockopt(zmq.RCVHWM, _CREDITS_QUEUED)
    socket.setsockopt(zmq.BACKLOG, _BACKLOG)
    # No heartbeats: for each answer libzmq walks over the timers of all connections, which takes
    # most of a core with 11,000 lanes. Ranks send heartbeats themselves. The kernel notices a peer
    # that reads nothing or is gone, and a silent session loses its lanes.
    socket.setsockopt(zmq.HEARTBEAT_IVL, 0)
    socket.setsockopt(zmq.TCP_MAXRT, UNREAD_MS)
    socket.setsockopt(zmq.PLAIN_SERVER, 1)
    socket.setsockopt_string(zmq.ZAP_DOMAIN, DATA_PORT_NAME)
    # Without an answer admit no peer; libzmq's default is to admit all.
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def _look_up(descriptor: int, port: int) -> Connection | None:
    """Return the connection that has this descriptor now, if it is one of this port."""
    try:
        lent = tcp.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        if lent.getsockname()[1] != port:
            return None
        return Connection(descriptor=descriptor, peer=tuple(lent.getpeername()))
    except (OSError, IndexError):
        return None
    finally:
        lent.detach()  # the socket still belongs to libzmq
