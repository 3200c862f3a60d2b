"""The tools of an attacker without an admitted key.

They are raw TCP that speaks any part of ZMTP, many connections at once, and ZeroMQ with stolen keys
or none.

Covers: connecting, sending what no ZeroMQ library sends, keeping all that comes back. Does not
cover: the daemon and its legitimate rank, an attacker between the two (tests/e2e/attacks), an
attacker with an admitted key (emlio_testing.attacks.insiders).
"""

import resource
import selectors
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Self

import zmq

from emlio.keys.curve import KeyPair
from emlio.keys.key import PublicKey

__all__ = [
    "ANSWER_S",
    "GREETING_BYTES",
    "Crowd",
    "Stranger",
    "dealer",
    "dealer_in",
    "frame",
    "greeting",
    "many_descriptors",
    "plain_hello",
]

GREETING_BYTES = 64

_COMMAND, _LONG = 0x04, 0x02
_CONNECT_S = 10.0
ANSWER_S = 10.0


def greeting(mechanism: bytes = b"CURVE", *, as_server: bool = False) -> bytes:
    """Return a peer's greeting: signature, version 3.1, mechanism, role, filler."""
    return b"\xff" + bytes(8) + b"\x7f\x03\x01" + mechanism.ljust(20, b"\0") + bytes((as_server,)) + bytes(31)


def frame(body: bytes, *, command: bool = False, said_bytes: int | None = None) -> bytes:
    """Return a frame; `said_bytes` is the length that it claims, by default its own."""
    length = len(body) if said_bytes is None else said_bytes
    kind = _COMMAND if command else 0
    if length < 256:
        return bytes((kind, length)) + body
    return bytes((kind | _LONG,)) + length.to_bytes(8, "big") + body


def plain_hello(token: bytes, user: bytes = b"rank") -> bytes:
    """Return the command with which a peer asks to connect a lane."""
    return frame(b"\x05HELLO" + bytes((len(user),)) + user + bytes((len(token),)) + token, command=True)


class Stranger:
    """One TCP connection to HOST:PORT; everything that came back is in `heard`."""

    def __init__(self, peer: str) -> None:
        host, _, port = peer.rpartition(":")
        self.heard = b""
        self._socket = socket.create_connection((host, int(port)), timeout=_CONNECT_S)

    def say(self, data: bytes) -> bool:
        """Send all of the data; return False if the peer closes the connection meanwhile."""
        try:
            self._socket.sendall(data)
        except (OSError, TimeoutError):
            return False
        return True

    def listen(self, timeout_s: float) -> bool:
        """Receive until the peer closes the connection or the time is up; return whether it did."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                return False
            except OSError:
                return True
            if not data:
                return True
            self.heard += data
        return False

    def hears(self, size_bytes: int) -> None:
        """Wait until so many bytes have come."""
        self._socket.settimeout(ANSWER_S)
        while len(self.heard) < size_bytes and (data := self._socket.recv(1 << 16)):
            self.heard += data

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Crowd:
    """Many connections in one thread. What came back over all of them is in `heard`."""

    def __init__(self, peer: str, count: int) -> None:
        """Open this many connections."""
        host, _, port = peer.rpartition(":")
        self._peer = host, int(port)
        self.heard = b""
        self._selector = selectors.DefaultSelector()
        self._open: set[socket.socket] = set()
        try:
            self.grow(count)
        except BaseException:
            self.close()
            raise

    @property
    def connections(self) -> int:
        """The number of connections that the peer has not closed."""
        return len(self._open)

    def grow(self, count: int) -> None:
        """Open more connections.

        Waits for each, so that none is lost in the daemon's accept queue.
        """
        for _ in range(count):
            one = socket.create_connection(self._peer, timeout=_CONNECT_S)
            one.setblocking(False)
            self._open.add(one)
            self._selector.register(one, selectors.EVENT_READ)

    def say(self, data: bytes) -> None:
        """Send the data over each connection, as far as its buffer has room."""
        for one in list(self._open):
            try:
                one.send(data)
            except BlockingIOError:
                continue
            except OSError:
                self._drop(one)

    def listen(self, timeout_s: float) -> bool:
        """Receive until all connections are closed or the time is up.

        Returns:
            Whether all are closed.
        """
        deadline = time.monotonic() + timeout_s
        while self._open and (left := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                one = key.fileobj
                assert isinstance(one, socket.socket)
                try:
                    data = one.recv(1 << 12)
                except OSError:
                    data = b""
                self.heard += data
                if not data:
                    self._drop(one)
        return not self._open

    def _drop(self, one: socket.socket) -> None:
        self._selector.unregister(one)
        self._open.discard(one)
        one.close()

    def close(self) -> None:
        """Close all connections."""
        for one in list(self._open):
            self._drop(one)
        self._selector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def dealer(
    endpoint: str, pair: KeyPair | None = None, daemon: PublicKey | None = None
) -> Generator["zmq.Socket[bytes]", None, None]:
    """Open a control connection with these keys, or none."""
    with zmq.Context() as context, dealer_in(context, endpoint, pair, daemon) as peer:
        yield peer


def dealer_in(
    context: "zmq.Context[zmq.Socket[bytes]]",
    endpoint: str,
    pair: KeyPair | None = None,
    daemon: PublicKey | None = None,
) -> "zmq.Socket[bytes]":
    """Return such a connection from an existing context; the caller closes it."""
    peer = context.socket(zmq.DEALER)
    try:
        peer.setsockopt(zmq.LINGER, 0)
        peer.setsockopt(zmq.RCVTIMEO, int(ANSWER_S * 1000))
        peer.setsockopt(zmq.SNDTIMEO, int(ANSWER_S * 1000))
        if pair is not None and daemon is not None:
            peer.setsockopt(zmq.CURVE_SERVERKEY, daemon.z85)
            peer.setsockopt(zmq.CURVE_PUBLICKEY, pair.public.z85)
            peer.setsockopt(zmq.CURVE_SECRETKEY, pair.secret.z85)
        peer.connect(endpoint)
    except BaseException:
        peer.close()
        raise
    return peer


@contextmanager
def many_descriptors(count: int) -> Generator[None, None, None]:
    """Let this process open `count` descriptors, if its hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, count)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise OSError(f"this needs {count} descriptors, the system allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
