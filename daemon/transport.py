"""ZeroMQ on the storage side: the control socket, the lanes, and waiting for them.

Covers: sockets with the options they need, and foreign errors mapped to ours. The only file of the daemon that imports zmq.
Does not cover: threads, what is sent.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Self

import zmq

from emlio.daemon.config import Endpoint, PortRange
from emlio.daemon.connection_names import draw_connection_names
from emlio.daemon.descriptors import Descriptors
from emlio.daemon.gate import CONTROL_DOOR, Gate, Guest, Knock, Verdict
from emlio.daemon.limits import MOST_ANSWERS, MOST_LANES, MOST_QUEUED_MESSAGES, UNREAD_MS
from emlio.errors import TransportError
from emlio.keys.curve import KeyPair
from emlio.waker import Waker
from emlio.wire.limits import MAX_CONTROL_BYTES, MAX_LANE_COMMAND_BYTES

__all__ = ["ControlSocket", "Doorbell", "Lane", "Network", "Received", "Sent", "Waiter"]

_OTHER_SOCKETS = 64
"""Besides lanes: the control port's, the doorbell, and those of libzmq's own."""

_CONTROL_THREAD, _LANE_THREAD = 1, 2
"""libzmq's threads, as bits. Strangers who knock at the control port, and every handshake there, must not slow down data."""

_HANDSHAKE_MS = 5_000
"""A connection that has not said who it is by then is closed: three round trips of 300 ms take a second."""


class _TakenError(TransportError):
    """Others listen at every address that was tried."""


class Lane:
    """One bound PUSH socket: one rank connects to it. Used by one thread only.

    Each message has one frame: see emlio.wire.data.
    """

    def __init__(self, socket: "zmq.Socket[bytes]", port: int, on_closed: Callable[[], None]) -> None:
        self.socket = socket
        self.port = port
        self._on_closed = on_closed
        self._owed: memoryview | None = None

    @property
    def owes(self) -> bool:
        """True while a payload whose header has left waits for room: `settle` it when the lane can be written."""
        return self._owed is not None

    @property
    def has_room(self) -> bool:
        """Whether a message would be taken now."""
        return self._owed is None and bool(int(self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLOUT)

    def send(self, frame: memoryview) -> bool:
        """Hand over a message, or return False when the lane is full.

        It is not copied: it must not change until nothing refers to it any more.
        """
        return self.settle() and self._offer(frame)

    def send_apart(self, header: bytes, payload: memoryview) -> bool:
        """Hand over a message as two, or return False when the lane is full.

        When there is room for the first only, the payload is owed: it leaves before anything else does.
        """
        if not self.settle():
            return False
        try:
            self.socket.send(header, zmq.DONTWAIT)
        except zmq.Again:
            return False
        self._owed = payload
        self.settle()
        return True

    def settle(self) -> bool:
        """Send what is owed; whether nothing is owed now."""
        if self._owed is not None and self._offer(self._owed):
            self._owed = None
        return self._owed is None

    def _offer(self, memory: memoryview) -> bool:
        try:
            self.socket.send(memory, zmq.DONTWAIT, copy=False)
        except zmq.Again:
            return False
        return True

    def close(self) -> None:
        """Free the port; what is queued or owed is dropped."""
        self._owed = None
        self.socket.close(linger=0)
        self._on_closed()


class Doorbell:
    """Where libzmq asks whether a peer may connect (ZeroMQ's RFC 27). Used by one thread only."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self.socket = socket
        self._request = b""

    def receive(self) -> Knock | None:
        """The next question, which must be answered before another is asked; None when nobody asks."""
        try:
            frames = self.socket.recv_multipart(zmq.DONTWAIT)
        except zmq.Again:
            return None
        _, self._request, door, address, _, *shown = frames
        knock = Knock(door=door.decode("ascii", "replace"), address=address.decode("ascii", "replace"))
        match shown:
            case b"CURVE", key if len(key) == 32:  # as every key
                return replace(knock, key=key)
            case b"PLAIN", _, token:
                return replace(knock, token=token)
            case _:
                return knock

    def answer(self, verdict: Verdict) -> None:
        """Say whether it may."""
        code, text = (b"200", b"OK") if verdict.admitted else (b"400", b"not admitted")
        self.socket.send_multipart((b"1.0", self._request, code, text, verdict.user.encode("ascii"), b""))

    def close(self) -> None:
        """Answer no more."""
        self.socket.close(linger=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A control message as it came.

    Attributes:
        connection: the peer's name here; one that connects again has another.
        data: the message.
        address: the host it comes from.
        key: the public key the peer proved to have; none where nobody is asked for one.
    """

    connection: bytes
    data: bytes
    address: str
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What became of a message to a peer.

    Attributes:
        reached: whether the peer is there.
        taken: whether the message is on its way; otherwise it was dropped, since the peer is gone or does not read.
        tracker: libzmq's word on when its memory is free again.
    """

    reached: bool
    taken: bool
    tracker: zmq.MessageTracker | None = None

    @property
    def under_way(self) -> bool:
        """Whether it still takes memory here."""
        return self.tracker is not None and not self.tracker.done


class ControlSocket:
    """The bound ROUTER socket. Used by one thread only."""

    def __init__(self, socket: "zmq.Socket[bytes]", endpoint: Endpoint, *, asks_keys: bool) -> None:
        self.socket = socket
        self.endpoint = endpoint
        self._asks_keys = asks_keys  # otherwise the user's name is what the peer says, and not the gate

    def receive(self) -> Received | None:
        """A message, or None when nothing is waiting.

        Messages of another shape come out empty.
        """
        try:
            identity, *frames = self.socket.recv_multipart(zmq.DONTWAIT, copy=False)
        except zmq.Again:
            return None
        return Received(
            connection=identity.bytes,
            data=frames[0].bytes if len(frames) == 1 else b"",
            address=_told(identity, "Peer-Address"),
            key=bytes.fromhex(_told(identity, "User-Id")) if self._asks_keys else b"",
        )

    def send(self, identity: bytes, data: bytes) -> Sent:
        """Send to a peer; dropped when it does not read, or is gone."""
        try:
            tracker = self.socket.send_multipart((identity, data), zmq.DONTWAIT, copy=False, track=True)
        except zmq.ZMQError as error:
            return Sent(reached=error.errno != zmq.EHOSTUNREACH, taken=False)
        return Sent(reached=True, taken=True, tracker=tracker)

    def close(self, linger_ms: int = 500) -> None:
        """Free the port, after giving last answers a moment to leave."""
        self.socket.close(linger=linger_ms)


class Waiter:
    """Waits until one of several things is ready."""

    def __init__(self, waker: Waker) -> None:
        self._waker = waker
        self._poller = zmq.Poller()
        self._poller.register(waker.fileno(), zmq.POLLIN)

    def wait(
        self,
        timeout_ms: int | None,
        *,
        control: ControlSocket | None = None,
        doorbell: Doorbell | None = None,
        lanes: Sequence[Lane] = (),
    ) -> None:
        """Return when `control` or `doorbell` can be read, a lane can be written, the waker woke, or time is up."""
        poller = self._poller
        for asked in (control, doorbell):
            if asked is not None:
                poller.register(asked.socket, zmq.POLLIN)
        for lane in lanes:
            poller.register(lane.socket, zmq.POLLOUT)
        try:
            poller.poll(timeout_ms)
        finally:
            for lane in reversed(lanes):  # the poller moves all that stand behind
                poller.unregister(lane.socket)
        self._waker.rest()


class Network:
    """The ZeroMQ context and everything bound from it."""

    def __init__(self, bind: Endpoint, data_ports: PortRange, gate: Gate, pair: KeyPair | None = None) -> None:
        """See the class.

        Args:
            bind: where the control port is, and the host of the lanes.
            data_ports: of the lanes.
            gate: is told which rank each lane waits for.
            pair: this daemon's keys; without them nobody is asked for a key.
        """
        draw_connection_names()
        self._context = zmq.Context(io_threads=2)
        self._gate = gate
        self._pair = pair
        self._doors, self._descriptors = itertools.count(1), Descriptors()
        # libzmq's own limit is 1,023 sockets, fewer than 64 ranks with 16 lanes each have.
        self._context.set(zmq.MAX_SOCKETS, min(MOST_LANES + _OTHER_SOCKETS, int(self._context.get(zmq.SOCKET_LIMIT))))
        self._bind = bind
        self._ports = data_ports
        self._next = data_ports.first

    def control(self) -> ControlSocket:
        """Bind the control socket."""
        socket = self._socket(zmq.ROUTER)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_CONTROL_BYTES)
        socket.setsockopt(zmq.RCVHWM, MOST_QUEUED_MESSAGES)
        socket.setsockopt(zmq.SNDHWM, MOST_ANSWERS)
        socket.setsockopt(zmq.TCP_MAXRT, UNREAD_MS)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # say it when a peer is gone
        socket.setsockopt(zmq.AFFINITY, _CONTROL_THREAD)
        self._common(socket)
        if self._pair is not None:
            self._ask_for_keys(socket, CONTROL_DOOR, self._pair)
        port = self._bind_one(socket, [self._bind.port])
        return ControlSocket(socket, Endpoint(host=self._bind.host, port=port), asks_keys=self._pair is not None)

    def doorbell(self) -> Doorbell:
        """Where libzmq asks about those who knock; before anything else is bound."""
        socket = self._socket(zmq.REP)
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind("inproc://zeromq.zap.01")
        return Doorbell(socket)

    def lane(self, high_water_mark: int, guest: Guest) -> Lane | None:
        """Bind a lane on the next free data port, for this rank alone; None where no port of the range is free."""
        self._descriptors.take_lane()
        door = f"lane {next(self._doors)}"
        self._gate.expect(door, guest)
        try:
            socket = self._lane_socket(high_water_mark, guest, door)
            port = self._bind_one(socket, self._candidates())
        except BaseException as error:
            self._gate.forget(door)
            if isinstance(error, _TakenError) and self._ports.first:
                return None
            raise
        return Lane(socket, port, partial(self._gate.forget, door))

    def _lane_socket(self, high_water_mark: int, guest: Guest, door: str) -> "zmq.Socket[bytes]":
        socket = self._socket(zmq.PUSH)
        # The mark must be set before the socket is bound: on a live pair it changes nothing.
        socket.setsockopt(zmq.SNDHWM, high_water_mark)
        # Nothing is received there, but the words by which one asks to be let in: of anybody.
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_LANE_COMMAND_BYTES)
        socket.setsockopt(zmq.AFFINITY, _LANE_THREAD)
        self._common(socket)
        if guest.token:
            socket.setsockopt(zmq.PLAIN_SERVER, 1)
            _ask_at(socket, door)
        elif self._pair is not None:
            self._ask_for_keys(socket, door, self._pair)
        return socket

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        try:
            return self._context.socket(kind)
        except zmq.ZMQError as error:
            raise TransportError(
                f"a socket must be had for each lane: {error.strerror}; "
                "allow more open files (ulimit -n), or fewer connections with --lanes"
            ) from error

    def exhausted(self) -> TransportError:
        """What to say where no port of the range became free."""
        return TransportError(
            f"each lane needs a port of the data ports {self._ports.first}-{self._ports.last}, none is free: "
            "give more with --data-ports, or fewer connections with --lanes"
        )

    def _candidates(self) -> Iterable[int]:
        first, last = self._ports.first, self._ports.last
        if not first:
            yield 0
            return
        start = self._next
        for port in [*range(start, last + 1), *range(first, start)]:
            self._next = port + 1 if port < last else first
            yield port

    @staticmethod
    def _ask_for_keys(socket: "zmq.Socket[bytes]", door: str, pair: KeyPair) -> None:
        socket.curve_server, socket.curve_secretkey = 1, pair.secret.z85
        _ask_at(socket, door)

    def _common(self, socket: "zmq.Socket[bytes]") -> None:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)
        if ":" in self._bind.host:
            socket.setsockopt(zmq.IPV6, 1)

    def _bind_one(self, socket: "zmq.Socket[bytes]", ports: Iterable[int]) -> int:
        reason, kind = "no port was tried", TransportError
        for port in ports:
            address = str(Endpoint(host=self._bind.host, port=port))
            try:
                socket.bind(address.replace(":0", ":*") if port == 0 else address)
            except zmq.ZMQError as error:
                reason = f"{address}: {error.strerror}"
                kind = _TakenError if error.errno == zmq.EADDRINUSE else TransportError
                if kind is _TakenError:
                    continue
                break
            bound: bytes = socket.getsockopt(zmq.LAST_ENDPOINT)  # type: ignore[assignment]  # pyzmq types all options as int or bytes
            return int(bound.rstrip(b"\0").rsplit(b":", 1)[1])
        socket.close(linger=0)
        raise kind(f"an address must be free to listen on, got {reason}")

    def close(self) -> None:
        """Free the context; every socket must be closed before."""
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _ask_at(socket: "zmq.Socket[bytes]", door: str) -> None:
    """Have libzmq ask about each peer, and admit none when nobody answers any more: by itself it would admit all."""
    socket.setsockopt_string(zmq.ZAP_DOMAIN, door)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def _told(frame: zmq.Frame, what: str) -> str:
    """What libzmq knows of the connection a message came by; "" where that is nothing."""
    try:
        return str(frame.get(what))
    except (zmq.ZMQError, UnicodeDecodeError):
        return ""
