"""An attacker between a daemon and a rank: he forwards what they say to each other, and does to it what he likes.

He listens at another address of this machine, at the same ports (as emlio_testing.proxy does). Lanes whose rank shows a token are
cut into messages, which he can repeat, exchange, hold back, or change; other connections are forwarded as they are.

Covers: forwarding, cutting, what was said on the way to the daemon. Does not cover: what networks do (emlio_testing.proxy).
"""

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock, Thread
from types import TracebackType
from typing import Self

__all__ = ["Message", "Middleman", "Tamper"]

Message = bytes
"""All frames of one, with their lengths."""

Tamper = Callable[[Message], list[Message]]
"""What to send in the place of a lane's next message; for all lanes together, from several threads, one at a time."""

_GREETING_BYTES = 64
_MORE, _LONG, _COMMAND = 0x01, 0x02, 0x04


class Middleman:
    """See the module.

    Attributes:
        heard: what ranks said over each connection to the control port.
        tampered: messages that came into his hands.
    """

    def __init__(self, *, target: str, host: str, ports: Sequence[int], tamper: Tamper) -> None:
        """See the class; the first of the ports is that of the control socket."""
        self.heard: list[bytearray] = []
        self.tampered = 0
        self._target = target
        self._tamper = tamper
        self._lock = Lock()
        self._closed = False
        self._sockets: list[socket.socket] = []
        self._threads: list[Thread] = []
        for port in ports:
            listener = socket.create_server((host, port))
            self._sockets.append(listener)
            self._start(self._accept, listener, port, port == ports[0])

    def _start(self, body: Callable[..., None], *arguments: object) -> None:
        thread = Thread(target=body, args=arguments, name="emlio-middleman", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket, port: int, is_control: bool) -> None:
        while True:
            try:
                rank, _ = listener.accept()
            except OSError:
                return
            try:
                daemon = socket.create_connection((self._target, port))
            except OSError:
                rank.close()
                continue
            with self._lock:
                self._sockets += [rank, daemon]
                if self._closed:
                    _end(rank, daemon)
                    return
                said = bytearray()
                if is_control:
                    self.heard.append(said)
                self._start(self._forward, rank, daemon, said)
                self._start(self._forward if is_control else self._cut, daemon, rank, bytearray())

    def _forward(self, source: socket.socket, sink: socket.socket, said: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                said += data
                sink.sendall(data)
        _end(source, sink)

    def _cut(self, source: socket.socket, sink: socket.socket, _: bytearray) -> None:
        with suppress(OSError, EOFError):
            left = _GREETING_BYTES
            while left:
                # As it comes: one side says the rest of it only when it has heard the beginning of the other's.
                piece = source.recv(left)
                if not piece:
                    raise EOFError
                left -= len(piece)
                sink.sendall(piece)
            while True:
                message, is_command = _next(source)
                if is_command:
                    sink.sendall(message)
                    continue
                with self._lock:
                    self.tampered += 1
                    instead = self._tamper(message)
                for one in instead:
                    sink.sendall(one)
        _end(source, sink)

    def close(self) -> None:
        """End every connection and every thread."""
        with self._lock:
            self._closed = True
            _end(*self._sockets)
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _exactly(source: socket.socket, size_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < size_bytes:
        piece = source.recv(size_bytes - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


def _next(source: socket.socket) -> tuple[Message, bool]:
    """All frames of the next message, and whether it is one of ZeroMQ's own commands."""
    message = bytearray()
    while True:
        kind = _exactly(source, 1)
        length = _exactly(source, 8 if kind[0] & _LONG else 1)
        message += kind + length + _exactly(source, int.from_bytes(length, "big"))
        if not kind[0] & _MORE:
            return bytes(message), bool(kind[0] & _COMMAND)
