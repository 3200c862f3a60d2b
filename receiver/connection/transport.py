"""ZeroMQ on the training side: control connections, lanes, and waiting for them.

Covers: sockets with the options they need. The only file of the receiver that imports zmq. Does not
cover: threads, the meaning of the bytes.
"""

import errno
import socket as tcp
import sys
import time
from collections.abc import Collection
from struct import Struct
from typing import Final

import zmq

from emlio.errors import ConfigError, RemoteProtocolError, TransportError
from emlio.receiver.addresses.connection_events import LaneEvent, LinkEvent
from emlio.receiver.addresses.lane_pass import LanePass
from emlio.receiver.addresses.trust import Credentials
from emlio.receiver.connection.mechanism import MechanismQuestion
from emlio.receiver.connection.open_files import files_of_process
from emlio.waker import Waker
from emlio.wire.limits import MAX_CONTROL_BYTES, MAX_DATA_FRAME_BYTES

__all__ = [
    "ControlLink",
    "Lane",
    "Network",
    "Waited",
]

_CREDITS_QUEUED = 64
"""Credits are totals: of those queued for a connection that does not take them, the last says
everything."""

_LINK_FILES = 5
_LANE_FILES = 5
"""Open files of each connection: TCP's, those by which libzmq's threads wake each other, and one to
spare."""

_THREAD_FILES = 5
"""Open files of libzmq's own threads, which begin with the first connection. It aborts the process
if it cannot open one of them."""

_LANE_CONNECT_MS = 5_000
"""TCP alone would try for two minutes."""

_LANE_SILENT_BEGINNING_NS = 2 * _LANE_CONNECT_MS * 1_000_000

_LANE_HEARTBEAT_MS = 10_000
_LANE_SILENT_MS = 60_000
"""libzmq counts only whole messages as signs of life: one of 4 MiB, as a daemon may be set to send, takes half a minute
over 1 Mbit/s."""


_LINK_EVENTS: dict[int, LinkEvent] = {
    zmq.EVENT_DISCONNECTED: LinkEvent.BROKEN,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: LinkEvent.REFUSED,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: LinkEvent.FOREIGN,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: LinkEvent.DROPPED,
}


_STEPS = zmq.EVENT_CONNECTED | zmq.EVENT_CONNECT_RETRIED
_EVENT: Final = Struct("=Hi")
"""An event of libzmq: its number, and a value, such as the descriptor of the connection."""

_ROUND_TRIPS_AT: Final = (slice(68, 72), slice(148, 152))
"""The positions of tcpi_rtt and tcpi_min_rtt in Linux's tcp_info, in microseconds. Hardly anything was sent, so the
shorter is the handshake's round trip. A kernel that does not know the second says less, or nothing."""

_UNKNOWN_US: Final = (0, 0xFFFF_FFFF)


class ControlLink:
    """A DEALER connected to one daemon, and libzmq's events of its connection.

    Attributes:
        connected: whether TCP ever connected it.
        refused: whether the other end, or the network, refused it before that; libzmq tries again
            by itself.
    """

    def __init__(self, socket: "zmq.Socket[bytes]", events: "zmq.Socket[bytes]") -> None:
        self.socket = socket
        self.events = events
        self.connected = False
        self.refused = False
        self._called_ns = time.monotonic_ns()
        self._round_trip_ns: int | None = None

    def news(self) -> LinkEvent | None:
        """Return the most telling event of the connection since the last call.

        Messages that came before it can still be received.
        """
        found: list[LinkEvent] = []
        while not self.closed and self.events.poll(0):
            event, value = _next_event(self.events)
            if event == zmq.EVENT_CONNECT_RETRIED:
                self.refused = True
            elif event == zmq.EVENT_CONNECTED:
                self.connected = True
                self._round_trip_ns = _round_trip_ns(value, most_ns=time.monotonic_ns() - self._called_ns)
            else:
                found.append(_LINK_EVENTS[event])
        return max(found, key=lambda event: event.value, default=None)

    def take_round_trip_ns(self) -> int | None:
        """Return the round trip of TCP's handshake, once; None if it is not known."""
        round_trip_ns, self._round_trip_ns = self._round_trip_ns, None
        return round_trip_ns

    def send(self, data: bytes) -> None:
        """Queue a message; it leaves once there is a connection."""
        try:
            self.socket.send(data, zmq.DONTWAIT)
        except zmq.Again:
            return  # the peer has not read a thousand messages: its silence will be noticed

    def receive(self) -> memoryview | None:
        """Return a message, in libzmq's own memory, or None if none is waiting."""
        try:
            frames = self.socket.recv_multipart(zmq.DONTWAIT, copy=False)
        except zmq.Again:
            return None
        return frames[0].buffer if len(frames) == 1 else memoryview(b"")

    @property
    def closed(self) -> bool:
        """Return whether it was closed."""
        return bool(self.socket.closed)

    def close(self, linger_ms: int = 0) -> None:
        """Disconnect, after giving the last messages a moment to leave."""
        self.socket.disable_monitor()
        self.events.close(linger=0)
        self.socket.close(linger=linger_ms)


_LANE_EVENTS: dict[int, LaneEvent] = {
    zmq.EVENT_CONNECTED: LaneEvent.CONNECTED,
    zmq.EVENT_HANDSHAKE_SUCCEEDED: LaneEvent.READY,
    zmq.EVENT_CLOSED: LaneEvent.UNREACHABLE,
    zmq.EVENT_DISCONNECTED: LaneEvent.ENDED,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: LaneEvent.TURNED_AWAY,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: LaneEvent.TURNED_AWAY,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: LaneEvent.TURNED_AWAY,
}


class Lane:
    """A DEALER connected once to a daemon's data port: a lane that ends is replaced."""

    def __init__(self, socket: "zmq.Socket[bytes]", events: "zmq.Socket[bytes]") -> None:
        self.socket = socket
        self.events = events
        self._begun_ns = time.monotonic_ns()
        self._begins = True

    def news(self) -> list[LaneEvent]:
        """Return the events of the connection since the last call."""
        found: list[LaneEvent] = []
        while self.events.poll(0):
            event, _ = _next_event(self.events)
            found.append(_LANE_EVENTS[event])
        self._begins = self._begins and not found
        if self._begins and time.monotonic_ns() - self._begun_ns > _LANE_SILENT_BEGINNING_NS:
            # libzmq says nothing of a connection for which it could not even open a socket.
            self._begins = False
            found.append(LaneEvent.UNREACHABLE)
        return found

    def receive(self) -> memoryview | None:
        """Return a message, or None if none is waiting.

        The message is in libzmq's own memory, which lives as long as a view of it does.

        Raises:
            RemoteProtocolError: the message has more than one frame. Its frames are dropped.
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

    def send(self, data: bytes) -> bool:
        """Queue a message; return False if there is no room, or no connection any more."""
        try:
            self.socket.send(data, zmq.DONTWAIT)
        except zmq.Again:
            return False
        return True

    def close(self) -> None:
        """Disconnect; unread messages are dropped."""
        self.socket.disable_monitor()
        self.events.close(linger=0)
        self.socket.close(linger=0)


Waited = ControlLink | Lane | MechanismQuestion
"""The things that the receive thread waits for."""


class Network:
    """The ZeroMQ context and everything connected from it. Used by one thread only."""

    def __init__(self, waker: Waker) -> None:
        """Begin without connections; `waker` ends waits.

        Raises:
            OSError: the process may open no more files.
        """
        try:
            self._context = zmq.Context()
        except zmq.ZMQError as error:
            raise OSError(error.errno, error.strerror) from error
        self._context.set(zmq.MAX_SOCKETS, int(self._context.get(zmq.SOCKET_LIMIT)))
        self._waker = waker
        self._links = 0
        self._files = files_of_process()
        self._poller = zmq.Poller()
        self._poller.register(waker.fileno(), zmq.POLLIN)

    def control(self, endpoint: str | None, credentials: Credentials | None) -> ControlLink:
        """Connect to a daemon's control port, which need not be up yet.

        Without an endpoint, do not connect.

        Raises:
            ConfigError: the endpoint cannot be connected to.
            TransportError: this process may open no more files.
        """
        files = _LINK_FILES if self._links else _LINK_FILES + _THREAD_FILES
        takes = self._files.take(files, leave=_LANE_FILES, from_kept=True)
        made = self._new(zmq.DEALER, MAX_CONTROL_BYTES, sum(_LINK_EVENTS) | _STEPS) if takes else None
        if made is None:
            raise TransportError(
                f"no open files are left for a connection to {endpoint or 'a daemon'} and a lane, which take "
                f"{files + _LANE_FILES}: this process is close to its limit of {self._files.limit:,}. Raise the limit "
                "(ulimit -n), or use fewer lanes with the daemons' --lanes"
            )
        socket, events = made
        if credentials is not None:
            _show(socket, credentials)
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

    def lane(self, endpoint: str, pass_: LanePass, *, leave: int | None = None) -> Lane | None:
        """Connect to a daemon's data port; return None if this process may open no more files.

        Messages sent before there is a connection leave with the end of its handshake.

        Args:
            endpoint: the data port.
            pass_: what the lane shows to the daemon.
            leave: for how many more lanes files must be left then. None: nothing comes from the
                daemon without this lane, so it may take files that are kept for the user's program.
        """
        if not self._files.take(_LANE_FILES, leave=_LANE_FILES * (leave or 0), from_kept=leave is None):
            return None
        made = self._new(zmq.DEALER, MAX_DATA_FRAME_BYTES, sum(_LANE_EVENTS))
        if made is None:
            return None
        socket, events = made
        socket.setsockopt(zmq.RECONNECT_IVL, -1)
        socket.setsockopt(zmq.CONNECT_TIMEOUT, _LANE_CONNECT_MS)
        socket.setsockopt(zmq.HEARTBEAT_IVL, _LANE_HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _LANE_SILENT_MS)
        socket.setsockopt(zmq.RCVHWM, 0)  # the credit given bounds what may come
        socket.setsockopt(zmq.SNDHWM, _CREDITS_QUEUED)
        socket.setsockopt(zmq.ROUTING_ID, pass_.name)
        socket.setsockopt(zmq.PLAIN_USERNAME, pass_.user)
        socket.setsockopt(zmq.PLAIN_PASSWORD, pass_.token)
        lane = Lane(socket, events)
        try:
            self._connect(socket, endpoint)
        except ConfigError:
            lane.close()
            raise
        self._poller.register(lane.socket, zmq.POLLIN)
        return lane

    def forget(self, thing: ControlLink | Lane) -> None:
        """Stop waiting for it; call this before closing it."""
        for part in _parts(thing):
            if part in self._poller:
                self._poller.unregister(part)

    def wait(self, timeout_ms: int | None, things: "Collection[Waited]") -> "list[Waited]":
        """Return those of `things` that are ready; none when the waker woke or the time is up."""
        questions = [thing for thing in things if isinstance(thing, MechanismQuestion)]
        for question in questions:  # rarely any, never for long, and what they wait for changes
            self._poller.register(question.fileno(), zmq.POLLIN if question.asked else zmq.POLLOUT)
        ready = {part for part, _ in self._poller.poll(timeout_ms)}
        for question in questions:
            self._poller.unregister(question.fileno())
        if self._waker.fileno() in ready:
            self._waker.rest()
        return [thing for thing in things if not ready.isdisjoint(_parts(thing))]

    def _new(self, kind: int, largest: int, watched: int) -> "tuple[zmq.Socket[bytes], zmq.Socket[bytes]] | None":
        """Return a socket, and the one from which its events come; None if no file is left for them.

        They were counted before, but the user's program opens files, too.
        """
        self._links += 1
        socket: zmq.Socket[bytes] | None = None
        try:
            socket = self._context.socket(kind)
            events: zmq.Socket[bytes] = socket.get_monitor_socket(watched, f"inproc://link-{self._links}")
        except zmq.ZMQError as error:
            if socket is not None:
                socket.close(linger=0)  # an open one would keep the context from ever being freed
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            return None
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, largest)
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 250)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)
        socket.setsockopt(zmq.IPV6, 1)
        return socket, events

    @staticmethod
    def _connect(socket: "zmq.Socket[bytes]", endpoint: str) -> None:
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            raise ConfigError(f"cannot connect to a daemon at {endpoint}: {error.strerror}") from error

    def close(self) -> None:
        """Free the context; every socket must be closed before."""
        self._context.term()


def _next_event(events: "zmq.Socket[bytes]") -> tuple[int, int]:
    """Return an event that is waiting, and its value.

    pyzmq's own function for this comes in a module that imports asyncio and ssl, which takes 35 ms.
    """
    return _EVENT.unpack_from(events.recv_multipart(zmq.DONTWAIT)[0])


def _round_trip_ns(descriptor: int, *, most_ns: int) -> int | None:
    """Return the round trip that the kernel measured when it connected this socket of libzmq's.

    This thread may learn of the connection late, so its own clock gives only an upper bound. If the
    connection ended at once, the descriptor may belong to another socket by now; the result is then
    None, or a harmless wrong figure.
    """
    if sys.platform != "linux":
        return None
    try:
        connection = tcp.socket(fileno=descriptor)
        try:
            told = connection.getsockopt(tcp.IPPROTO_TCP, tcp.TCP_INFO, _ROUND_TRIPS_AT[-1].stop)
        finally:
            connection.detach()  # it stays libzmq's
    except OSError:
        return None
    measured_us = [int.from_bytes(told[at], sys.byteorder) for at in _ROUND_TRIPS_AT]
    shortest_us = min((each for each in measured_us if each not in _UNKNOWN_US), default=0)
    return min(shortest_us * 1000, most_ns) or None


def _show(socket: "zmq.Socket[bytes]", credentials: Credentials) -> None:
    socket.setsockopt(zmq.CURVE_SERVERKEY, credentials.daemon.z85)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, credentials.pair.public.z85)
    socket.setsockopt(zmq.CURVE_SECRETKEY, credentials.pair.secret.z85)


def _parts(thing: Waited) -> "tuple[zmq.Socket[bytes] | int, ...]":
    match thing:
        case ControlLink(socket=socket, events=events):
            return socket, events
        case Lane(socket=socket):
            return (socket,)
        case MechanismQuestion():
            return (thing.fileno(),)
