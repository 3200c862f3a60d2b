"""ZeroMQ on the training side: the control connection, the lanes, and waiting for them.

Covers: sockets with the options they need. The only file of the receiver that imports zmq. Does not cover: threads, what the
bytes mean.
"""

import socket as tcp
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

import zmq
from zmq.utils.monitor import recv_monitor_message

from emlio.errors import ConfigError, RemoteProtocolError
from emlio.keys.curve import KeyPair
from emlio.keys.key import PublicKey
from emlio.waker import Waker
from emlio.wire.limits import MAX_CONTROL_BYTES, MAX_DATA_FRAME_BYTES

__all__ = [
    "LANE_QUEUE",
    "ControlLink",
    "Credentials",
    "Lane",
    "LinkEvent",
    "Network",
]

LANE_QUEUE = 4
"""Messages libzmq may hold per lane besides those in the window: enough that its thread and ours never wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a rank shows to one daemon, and what it wants to be shown.

    Attributes:
        pair: this host's keys.
        daemon: the key the daemon must prove to have.
    """

    pair: KeyPair
    daemon: PublicKey


class LinkEvent(Enum):
    """What became of a control connection.

    Attributes:
        BROKEN: there was one, and it ended.
        DROPPED: it ended before both ends knew each other, as it does where the daemon has another key.
        FOREIGN: one end asks for keys and the other does not.
        REFUSED: the daemon does not admit this host's key.
    """

    BROKEN = auto()
    DROPPED = auto()
    FOREIGN = auto()
    REFUSED = auto()


_LINK_EVENTS: dict[int, LinkEvent] = {
    zmq.EVENT_DISCONNECTED: LinkEvent.BROKEN,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: LinkEvent.REFUSED,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: LinkEvent.FOREIGN,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: LinkEvent.DROPPED,
}


_STEPS = zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_CONNECT_RETRIED
_ROUND_TRIP_AT = slice(68, 72)
"""Of Linux's tcp_info, where tcpi_rtt lies: microseconds, and since nothing else was sent, those of the handshake."""


class ControlLink:
    """A DEALER connected to one daemon, and what libzmq tells of its connection.

    Attributes:
        connected: whether TCP ever connected it.
        refused: whether the other end, or the network, said no before that; libzmq tries again by itself.
    """

    def __init__(self, socket: "zmq.Socket[bytes]", events: "zmq.Socket[bytes]") -> None:
        self.socket = socket
        self.events = events
        self.connected = False
        self.refused = False
        self._called_ns = time.monotonic_ns()
        self._round_trip_ns: int | None = None
        self._greeted = False

    def news(self) -> LinkEvent | None:
        """What became of the connection since this was asked last, what says most; what came before can still be read."""
        found: list[LinkEvent] = []
        while not self.closed and self.events.poll(0):
            told = recv_monitor_message(self.events, zmq.DONTWAIT)
            event: int = told["event"]
            if event == zmq.EVENT_CONNECT_RETRIED:
                self.refused = True
            elif event == zmq.EVENT_CONNECTED:
                self.connected = True
                self._round_trip_ns = _round_trip_ns(told["value"], most_ns=time.monotonic_ns() - self._called_ns)
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._greeted = True
            else:
                found.append(_LINK_EVENTS[event])
        return max(found, key=lambda event: event.value, default=None)

    def take_round_trip_ns(self) -> int | None:
        """What TCP's handshake took, told once, when both ends know each other; None where that is not known."""
        if not self._greeted:
            return None
        round_trip_ns, self._round_trip_ns = self._round_trip_ns, None
        return round_trip_ns

    def send(self, data: bytes) -> None:
        """Queue a message; it leaves once there is a connection."""
        try:
            self.socket.send(data, zmq.DONTWAIT)
        except zmq.Again:
            return  # the peer has not read a thousand messages: its silence will be noticed

    def receive(self) -> bytes | None:
        """A message, or None when nothing is waiting."""
        try:
            frames = self.socket.recv_multipart(zmq.DONTWAIT)
        except zmq.Again:
            return None
        return frames[0] if len(frames) == 1 else b""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return bool(self.socket.closed)

    def close(self, linger_ms: int = 0) -> None:
        """Disconnect, after giving last words a moment to leave."""
        self.socket.disable_monitor()
        self.events.close(linger=0)
        self.socket.close(linger=linger_ms)


class Lane:
    """A PULL connected to one of a daemon's lanes."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self.socket = socket

    def receive(self) -> memoryview | None:
        """A message, in libzmq's own memory, which lives as long as a view of it does; None when nothing is waiting.

        Raises:
            RemoteProtocolError: it has more than one frame. They are dropped.
        """
        try:
            frame = self.socket.recv(zmq.DONTWAIT, copy=False)
        except zmq.Again:
            return None
        frames = 1
        while frame.more:
            frame = self.socket.recv(copy=False)
            frames += 1
        if frames > 1:
            raise RemoteProtocolError(f"a data message must have 1 frame, got {frames}")
        return frame.buffer

    def close(self) -> None:
        """Disconnect; what has not been read is dropped."""
        self.socket.close(linger=0)


class Network:
    """The ZeroMQ context and everything connected from it. Used by one thread only."""

    def __init__(self, waker: Waker) -> None:
        self._context = zmq.Context()
        self._waker = waker
        self._links = 0
        self._poller = zmq.Poller()
        self._poller.register(waker.fileno(), zmq.POLLIN)

    def control(self, endpoint: str | None, credentials: Credentials | None) -> ControlLink:
        """Connect to a daemon's control port; it need not be there yet, and without an endpoint nobody is called."""
        socket = self._new(zmq.DEALER, MAX_CONTROL_BYTES)
        if credentials is not None:
            _show(socket, credentials)
        self._links += 1
        events = socket.get_monitor_socket(sum(_LINK_EVENTS) | _STEPS, f"inproc://link-{self._links}")
        link = ControlLink(socket, events)
        try:
            if endpoint is not None:
                self._connect(socket, endpoint)
        except ConfigError:
            link.close()
            raise
        for part in (link.socket, link.events):
            self._poller.register(part, zmq.POLLIN)
        return link

    def lane(self, endpoint: str, token: bytes, credentials: Credentials | None) -> Lane:
        """Connect to a lane, which admits whoever has the token, or, where there is none, this host's key."""
        lane = Lane(self._new(zmq.PULL, MAX_DATA_FRAME_BYTES))
        # Before connecting: on a live pair a mark changes nothing.
        lane.socket.setsockopt(zmq.RCVHWM, LANE_QUEUE)
        if token:
            lane.socket.setsockopt(zmq.PLAIN_USERNAME, b"rank")
            lane.socket.setsockopt(zmq.PLAIN_PASSWORD, token)
        elif credentials is not None:
            _show(lane.socket, credentials)
        try:
            self._connect(lane.socket, endpoint)
        except ConfigError:
            lane.close()
            raise
        self._poller.register(lane.socket, zmq.POLLIN)
        return lane

    def forget(self, thing: "ControlLink | Lane") -> None:
        """Wait for it no longer; before closing it, or while it shall not be read."""
        for part in _parts(thing):
            if part in self._poller:
                self._poller.unregister(part)

    def remember(self, thing: Lane) -> None:
        """Wait for it again."""
        if thing.socket not in self._poller:
            self._poller.register(thing.socket, zmq.POLLIN)

    def wait(self, timeout_ms: int | None, things: "Iterable[ControlLink | Lane]") -> "list[ControlLink | Lane]":
        """Those of `things` that can be read; empty when the waker woke or time is up."""
        ready = {socket for socket, _ in self._poller.poll(timeout_ms)}
        self._waker.rest()
        return [thing for thing in things if not ready.isdisjoint(_parts(thing))]

    def _new(self, kind: int, largest: int) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, largest)
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 250)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)
        socket.setsockopt(zmq.IPV6, 1)
        return socket

    @staticmethod
    def _connect(socket: "zmq.Socket[bytes]", endpoint: str) -> None:
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            raise ConfigError(
                f"a daemon's address must be one that can be connected to, got {endpoint}: {error.strerror}"
            ) from error

    def close(self) -> None:
        """Free the context; every socket must be closed before."""
        self._context.term()


def _round_trip_ns(descriptor: int, *, most_ns: int) -> int | None:
    """What the kernel measured while it connected this socket of libzmq's.

    This thread may hear late of the connection, so its own clock says only how long it took at most. The descriptor may stand for
    another one by now, if the connection ended at once: then nothing is told, or a figure of no consequence.
    """
    if sys.platform != "linux":
        return None
    try:
        connection = tcp.socket(fileno=descriptor)
        try:
            told = connection.getsockopt(tcp.IPPROTO_TCP, tcp.TCP_INFO, _ROUND_TRIP_AT.stop)
        finally:
            connection.detach()  # it stays libzmq's
    except OSError:
        return None
    measured_ns = int.from_bytes(told[_ROUND_TRIP_AT], sys.byteorder) * 1000
    return min(measured_ns, most_ns) or None


def _show(socket: "zmq.Socket[bytes]", credentials: Credentials) -> None:
    socket.setsockopt(zmq.CURVE_SERVERKEY, credentials.daemon.z85)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, credentials.pair.public.z85)
    socket.setsockopt(zmq.CURVE_SECRETKEY, credentials.pair.secret.z85)


def _parts(thing: "ControlLink | Lane") -> "tuple[zmq.Socket[bytes], ...]":
    return (thing.socket, thing.events) if isinstance(thing, ControlLink) else (thing.socket,)
