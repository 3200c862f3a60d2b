"""ZeroMQ on the storage side: the control socket, the lanes, and waiting for them.

Covers: sockets with their options, mapping ZeroMQ's errors to EMLIO's. Apart from this module only
emlio.daemon.network.authentication_socket and emlio.daemon.network.lane_socket import zmq. Does not cover:
threads, the content of messages.
"""

import ctypes
import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType
from typing import Self

import msgspec
import zmq

from emlio.daemon.access.gate import CONTROL_PORT_NAME
from emlio.daemon.config import Endpoint
from emlio.daemon.limits import MOST_ANSWERS, MOST_QUEUED_MESSAGES, UNREAD_MS
from emlio.daemon.network.authentication_socket import AuthenticationSocket
from emlio.daemon.network.lane_socket import LaneSocket, set_lane_options
from emlio.errors import TransportError
from emlio.keys.curve import KeyPair
from emlio.listeners import listening_process
from emlio.waker import Waker
from emlio.wire.limits import MAX_CONTROL_BYTES
from emlio.wire.status import LOCAL_STATUS

__all__ = ["ControlSocket", "Network", "Received", "Sent", "Waiter", "draw_connection_names"]

_LOG = logging.getLogger("emlio.daemon")

_CONTROL_THREAD, _LANE_THREAD = 1, 2
"""libzmq's threads, as bits. Connections to the control port, and every handshake there, must not
slow down data."""

_HANDSHAKE_MS = 5_000
"""A connection that has not authenticated itself by then is closed. Three round trips of 300 ms
take a second."""


def draw_connection_names() -> None:
    """Make libzmq number its connections from a random start; call it before the first socket.

    libzmq begins with one of the C library's random numbers, which it does not seed: every process
    would begin with the same one. A peer that took the name of the next connection would end this
    process, as libzmq asserts that names differ.
    """
    ctypes.CDLL(None).srand(int.from_bytes(os.urandom(4), "little"))


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A control message as it came.

    Attributes:
        connection: the peer's name here; a peer that connects again has another one.
        data: the message.
        address: the peer's host.
        key: the public key the peer proved to have; empty where clients need no key.
        is_local: whether it came over the local socket, from root or this daemon's own user.
    """

    connection: bytes
    data: bytes
    address: str
    key: bytes
    is_local: bool = False


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The result of sending a message to a peer.

    Attributes:
        reached: whether the peer is connected.
        taken: whether the message is on its way; otherwise it was dropped, since the peer is gone
            or does not read.
        tracker: libzmq's notice when the message's memory is free again.
    """

    reached: bool
    taken: bool
    tracker: zmq.MessageTracker | None = None

    @property
    def under_way(self) -> bool:
        """True if the message still takes memory here."""
        return self.tracker is not None and not self.tracker.done


class ControlSocket:
    """The bound ROUTER socket. Used by one thread only."""

    def __init__(
        self, socket: "zmq.Socket[bytes]", endpoint: Endpoint, *, asks_keys: bool, is_local: bool = False
    ) -> None:
        self.socket = socket
        self.endpoint = endpoint
        self._is_local = is_local
        # Without keys, the user name is the peer's own claim, not the gate's.
        self._asks_keys = asks_keys

    def receive(self) -> Received | None:
        """Return a message, or None if none is waiting.

        The data of a message with more than one frame is empty.
        """
        try:
            identity, *frames = self.socket.recv_multipart(zmq.DONTWAIT, copy=False)
        except zmq.Again:
            return None
        return Received(
            connection=identity.bytes,
            data=frames[0].bytes if len(frames) == 1 else b"",
            address=_told(identity, "Peer-Address"),
            is_local=self._is_local,
            key=bytes.fromhex(_told(identity, "User-Id")) if self._asks_keys else b"",
        )

    def send(self, identity: bytes, data: bytes | memoryview) -> Sent:
        """Send to a peer; the message is dropped if the peer does not read, or is gone."""
        try:
            tracker = self.socket.send_multipart((identity, data), zmq.DONTWAIT, copy=False, track=True)
        except zmq.ZMQError as error:
            return Sent(reached=error.errno != zmq.EHOSTUNREACH, taken=False)
        return Sent(reached=True, taken=True, tracker=tracker)

    def close(self, linger_ms: int = 500) -> None:
        """Free the port, after giving the last answers a moment to leave."""
        self.socket.close(linger=linger_ms)


class Waiter:
    """Waits for sockets and a waker."""

    def __init__(self, waker: Waker) -> None:
        self._waker = waker
        self._poller = zmq.Poller()
        self._poller.register(waker.fileno(), zmq.POLLIN)

    def wait(self, timeout_ms: int | None, *sockets: ControlSocket | AuthenticationSocket | None) -> None:
        """Return when a socket can be read, the waker woke, or time is up."""
        for asked in sockets:
            if asked is not None:
                self._poller.register(asked.socket, zmq.POLLIN)
        self._poller.poll(timeout_ms)
        self._waker.rest()


class Network:
    """The ZeroMQ context and all sockets bound from it.

    Attributes:
        data_endpoint: the endpoint of lanes, with the real port; None until `lanes` has bound it.
    """

    def __init__(self, bind: Endpoint, pair: KeyPair | None = None) -> None:
        """See the class.

        Args:
            bind: the endpoint of the control port.
            pair: this daemon's keys; without them clients need no key.
        """
        draw_connection_names()
        self._context = zmq.Context(io_threads=2)
        self._pair = pair
        self._bind = bind
        self.data_endpoint: Endpoint | None = None

    def control(self) -> ControlSocket:
        """Bind the control socket."""
        socket = self._control_socket()
        if self._pair is not None:
            self._ask_for_keys(socket, CONTROL_PORT_NAME, self._pair)
        port = self._bind_one(socket, [self._bind], "control port", "--bind")
        return ControlSocket(socket, Endpoint(host=self._bind.host, port=port), asks_keys=self._pair is not None)

    def local_status(self, control: Endpoint) -> ControlSocket | None:
        """Bind the local socket, on which libzmq admits root and this process's user only.

        A daemon serves without it: then the reason is logged.
        """
        socket = self._control_socket()
        try:
            for user in {0, os.geteuid()}:
                socket.setsockopt(zmq.IPC_FILTER_UID, user)
            socket.bind(f"ipc://@{LOCAL_STATUS}{str(control).removeprefix('tcp://')}")
        except zmq.ZMQError as error:
            socket.close(linger=0)
            _LOG.warning(
                "emlio status needs keys on this host, too: no local socket (%s)", zmq.strerror(error.errno or 0)
            )
            return None
        return ControlSocket(socket, control, asks_keys=False, is_local=True)

    def _control_socket(self) -> "zmq.Socket[bytes]":
        socket = self._socket(zmq.ROUTER)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_CONTROL_BYTES)
        socket.setsockopt(zmq.RCVHWM, MOST_QUEUED_MESSAGES)
        socket.setsockopt(zmq.SNDHWM, MOST_ANSWERS)
        socket.setsockopt(zmq.TCP_MAXRT, UNREAD_MS)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # report an error when a peer is gone
        socket.setsockopt(zmq.AFFINITY, _CONTROL_THREAD)
        self._common(socket)
        return socket

    def authentication_socket(self) -> AuthenticationSocket:
        """Bind the socket on which libzmq asks about new peers; call it before any other bind."""
        socket = self._socket(zmq.ROUTER)  # not REP: answers may be out of order
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind("inproc://zeromq.zap.01")
        return AuthenticationSocket(socket)

    def lanes(self, bind: Endpoint, control_port: int) -> LaneSocket:
        """Bind the socket for the lanes of all ranks.

        Port 0 stands for the port after the control port, or any if that is taken.
        """
        socket = self._socket(zmq.ROUTER)
        set_lane_options(socket)
        socket.setsockopt(zmq.AFFINITY, _LANE_THREAD)
        self._common(socket)
        socket.setsockopt(zmq.IPV6, ":" in bind.host)
        ports = (bind.port,) if bind.port else (min(control_port + 1, 65_535), 0)
        port = self._bind_one(socket, [replace(bind, port=port) for port in ports], "data port", "--data-port")
        self.data_endpoint = replace(bind, port=port)
        return LaneSocket(socket, port)

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        try:
            return self._context.socket(kind)
        except zmq.ZMQError as error:
            raise TransportError(
                f"a socket cannot be created: {error.strerror}. Allow more open files (ulimit -n)"
            ) from error

    @staticmethod
    def _ask_for_keys(socket: "zmq.Socket[bytes]", port: str, pair: KeyPair) -> None:
        socket.curve_server, socket.curve_secretkey = 1, pair.secret.z85
        _ask_at(socket, port)

    def _common(self, socket: "zmq.Socket[bytes]") -> None:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)
        if ":" in self._bind.host:
            socket.setsockopt(zmq.IPV6, 1)

    @staticmethod
    def _bind_one(socket: "zmq.Socket[bytes]", endpoints: Iterable[Endpoint], name: str, flag: str) -> int:
        """Bind to the first free endpoint, and return its port.

        The error has the port's name and its flag.
        """
        reason = "no port was tried"
        for endpoint in endpoints:
            address = str(endpoint)
            try:
                socket.bind(f"{address.removesuffix('0')}*" if endpoint.port == 0 else address)
            except zmq.ZMQError as error:
                reason = f"{address}: {zmq.strerror(error.errno or 0)}"
                if error.errno == zmq.EADDRINUSE:
                    reason += listening_process(endpoint.port)
                    continue
                break
            bound: bytes = socket.getsockopt(zmq.LAST_ENDPOINT)  # type: ignore[assignment]  # pyzmq types all options as int or bytes
            return int(bound.rstrip(b"\0").rsplit(b":", 1)[1])
        socket.close(linger=0)
        raise TransportError(f"the {name} cannot be opened: {reason}. Choose another one with {flag}")

    def close(self) -> None:
        """Free the context; every socket must be closed before."""
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _ask_at(socket: "zmq.Socket[bytes]", port: str) -> None:
    """Make libzmq ask about each peer, and admit none without an answer.

    By default it would admit all.
    """
    socket.setsockopt_string(zmq.ZAP_DOMAIN, port)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def _told(frame: zmq.Frame, what: str) -> str:
    """Return a property that libzmq knows of the message's connection; "" if it knows none."""
    try:
        return str(frame.get(what))
    except (zmq.ZMQError, UnicodeDecodeError):
        return ""
