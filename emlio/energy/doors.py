"""Waits for a moment, and answers at sockets meanwhile.

Covers: connections without threads: how many, how long, how much they may say. Does not cover: what is asked and answered
(emlio.energy.edge, emlio.energy.metrics).
"""

import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from emlio.clock import Clock
from emlio.waker import Waker

__all__ = ["Answer", "Doors"]

_MOST_CONNECTIONS = 32
"""At each door: those who ask a recorder are a node's ranks, and one who scrapes."""

_MOST_REQUEST_BYTES = 8192
_PIECE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is said to a request.

    Attributes:
        reply: the bytes.
        rest: what came after the request; None to say no more after the reply.
        holds: whether whoever asked wants to be answered for as long as he is connected.
    """

    reply: bytes
    rest: bytes | None
    holds: bool = False


class _Connection:
    def __init__(self, link: socket.socket, door: "_Door", now_ns: int) -> None:
        self.link = link
        self.door = door
        self.heard = b""
        self.to_say = b""
        self.leaving = False
        self.holds = False
        self.since_ns = now_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Door:
    listener: socket.socket
    answer: Callable[[bytes], Answer | None]
    patience_ns: int | None


class Doors:
    """Listening sockets and their connections. One thread owns it; `wake` may be called from anywhere, signal handlers too.

    Attributes:
        was_held: whether a connection ever said that it holds.
    """

    def __init__(self, clock: Clock) -> None:
        self.was_held = False
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._waker = Waker()
        self._selector.register(self._waker, selectors.EVENT_READ, None)
        self._doors: list[_Door] = []
        self._connections: list[_Connection] = []
        self._woken = False

    def open(
        self, listener: socket.socket, answer: Callable[[bytes], Answer | None], *, patience_ns: int | None = None
    ) -> None:
        """Answer at a socket from now on, and close it at the end.

        Args:
            listener: one that listens.
            answer: gets what has been heard so far; returns None until a request is whole. It must not raise.
            patience_ns: how long a connection may take to be answered; None for ever.
        """
        listener.setblocking(False)
        door = _Door(listener=listener, answer=answer, patience_ns=patience_ns)
        self._doors.append(door)
        self._selector.register(listener, selectors.EVENT_READ, door)

    def wait(self, until_ns: int) -> None:
        """Answer until that moment, or until woken."""
        while not self._woken and (left_ns := until_ns - self._clock.monotonic_ns()) > 0:
            for key, ready in self._selector.select(left_ns / 1e9):
                if isinstance(key.data, _Door):
                    self._welcome(key.data)
                elif isinstance(key.data, _Connection):
                    self._serve(key.data, ready)
                else:
                    self._woken = True
            self._lose_patience()
        if self._woken:
            self._waker.rest()
            self._woken = False

    @property
    def held(self) -> bool:
        """Whether a connection holds now."""
        return any(one.holds for one in self._connections)

    def wake(self) -> None:
        """Make `wait` return, now or the next time."""
        self._waker.wake()

    def _welcome(self, door: _Door) -> None:
        try:
            link, _ = door.listener.accept()
        except OSError:
            return  # it has gone again, or there are no descriptors left
        if sum(one.door is door for one in self._connections) >= _MOST_CONNECTIONS:
            link.close()
            return
        link.setblocking(False)
        connection = _Connection(link, door, self._clock.monotonic_ns())
        self._connections.append(connection)
        self._selector.register(link, selectors.EVENT_READ, connection)

    def _serve(self, connection: _Connection, ready: int) -> None:
        try:
            if ready & selectors.EVENT_READ and not self._hear(connection):
                self._dismiss(connection)
                return
            self._converse(connection)
        except BlockingIOError:
            return
        except OSError:
            self._dismiss(connection)

    def _hear(self, connection: _Connection) -> bool:
        """Take in what was said; returns whether it is still worth listening."""
        piece = connection.link.recv(_PIECE_BYTES)
        connection.heard += piece
        return bool(piece) and len(connection.heard) <= _MOST_REQUEST_BYTES

    def _converse(self, connection: _Connection) -> None:
        """Answer what was heard, one request after the other. While something is left to say, nothing more is heard."""
        while True:
            if not self._said(connection):
                self._selector.modify(connection.link, selectors.EVENT_WRITE, connection)
                return
            if connection.leaving:
                self._dismiss(connection)
                return
            answer = connection.door.answer(connection.heard) if connection.heard else None
            if answer is None:
                self._selector.modify(connection.link, selectors.EVENT_READ, connection)
                return
            connection.to_say, connection.heard = answer.reply, answer.rest or b""
            connection.leaving = answer.rest is None
            if answer.holds:
                connection.holds = self.was_held = True

    def _said(self, connection: _Connection) -> bool:
        """Say what fits; returns whether that was all."""
        while connection.to_say:
            try:
                connection.to_say = connection.to_say[connection.link.send(connection.to_say) :]
            except BlockingIOError:
                return False
        return True

    def _lose_patience(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for one in list(self._connections):
            if one.door.patience_ns is not None and now_ns - one.since_ns > one.door.patience_ns:
                self._dismiss(one)

    def _dismiss(self, connection: _Connection) -> None:
        self._selector.unregister(connection.link)
        self._connections.remove(connection)
        connection.link.close()

    def close(self) -> None:
        """Close all sockets. Closing again does nothing."""
        for connection in list(self._connections):
            self._dismiss(connection)
        for door in self._doors:
            door.listener.close()
        self._doors.clear()
        self._selector.close()
        self._waker.close()

    def __enter__(self) -> Self:
        """Itself, for `with`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
