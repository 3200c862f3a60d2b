"""Waiting for a moment while answering requests on sockets.

Covers: connections without threads, with limits on their number, duration and request size. Does
not cover: requests and answers (emlio.energy.recording.instant_reading,
emlio.metrics.http).
"""

import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from emlio.clock import Clock
from emlio.open_limits import is_used_up
from emlio.waker import Waker

__all__ = ["Answer", "SocketWaiter"]

_MOST_CONNECTIONS = 32
"""Limit for each socket. A recorder's clients are the node's ranks and one scraper."""

_REST_NS = 200_000_000
"""Pause before the next try if no descriptor is left for a connection."""

_MOST_REQUEST_BYTES = 8192
_PIECE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a request.

    Attributes:
        reply: the bytes to send.
        rest: the bytes received after the request; None to close the connection after the reply.
        holds: whether the client wants to be served for as long as it is connected.
    """

    reply: bytes
    rest: bytes | None
    holds: bool = False


class _Connection:
    def __init__(self, link: socket.socket, listening: "_Listening", now_ns: int) -> None:
        self.link = link
        self.listening = listening
        self.heard = b""
        self.to_say = b""
        self.leaving = False
        self.holds = False
        self.since_ns = now_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listening:
    listener: socket.socket
    answer: Callable[[bytes], Answer | None]
    patience_ns: int | None


class SocketWaiter:
    """Listening sockets and their connections.

    One thread owns it. `wake` may be called from any thread and from signal handlers.

    Attributes:
        was_held: whether any connection ever held it.
    """

    def __init__(self, clock: Clock) -> None:
        self.was_held = False
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._waker = Waker()
        self._selector.register(self._waker, selectors.EVENT_READ, None)
        self._listening: list[_Listening] = []
        self._resting: list[_Listening] = []
        self._rest_until_ns = 0
        self._connections: list[_Connection] = []
        self._woken = False

    def open(
        self, listener: socket.socket, answer: Callable[[bytes], Answer | None], *, patience_ns: int | None = None
    ) -> None:
        """Serve a socket from now on, and close it at the end.

        Args:
            listener: a listening socket.
            answer: gets the bytes received so far; returns None until a request is complete. It
                must not raise.
            patience_ns: lifetime limit of a connection; None for no limit.
        """
        listener.setblocking(False)
        listening = _Listening(listener=listener, answer=answer, patience_ns=patience_ns)
        self._listening.append(listening)
        self._selector.register(listener, selectors.EVENT_READ, listening)

    def wait(self, until_ns: int) -> None:
        """Serve until that moment, or until woken."""
        while not self._woken and (now_ns := self._clock.monotonic_ns()) < until_ns:
            for key, ready in self._selector.select(max(self._due_ns(until_ns) - now_ns, 0) / 1e9):
                if isinstance(key.data, _Listening):
                    self._welcome(key.data)
                elif isinstance(key.data, _Connection):
                    self._serve(key.data, ready)
                else:
                    self._woken = True
            self._lose_patience()
            self._listen_again()
        if self._woken:
            self._waker.rest()
            self._woken = False

    @property
    def held(self) -> bool:
        """True while a connection holds it."""
        return any(one.holds for one in self._connections)

    def wake(self) -> None:
        """Make `wait` return, now or the next time."""
        self._waker.wake()

    def _welcome(self, listening: _Listening) -> None:
        try:
            link, _ = listening.listener.accept()
        except OSError as error:
            if is_used_up(error):
                # The client is still waiting, so the selector would report it without end.
                self._selector.unregister(listening.listener)
                self._resting.append(listening)
                self._rest_until_ns = self._clock.monotonic_ns() + _REST_NS
            return  # otherwise the connection is gone again
        if sum(one.listening is listening for one in self._connections) >= _MOST_CONNECTIONS:
            link.close()
            return
        link.setblocking(False)
        connection = _Connection(link, listening, self._clock.monotonic_ns())
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
        """Receive bytes; return whether the connection is still open and within its limit."""
        piece = connection.link.recv(_PIECE_BYTES)
        connection.heard += piece
        return bool(piece) and len(connection.heard) <= _MOST_REQUEST_BYTES

    def _converse(self, connection: _Connection) -> None:
        """Answer requests one after the other.

        While a reply is pending, nothing more is received.
        """
        while True:
            if not self._said(connection):
                self._selector.modify(connection.link, selectors.EVENT_WRITE, connection)
                return
            if connection.leaving:
                self._dismiss(connection)
                return
            answer = connection.listening.answer(connection.heard) if connection.heard else None
            if answer is None:
                self._selector.modify(connection.link, selectors.EVENT_READ, connection)
                return
            connection.to_say, connection.heard = answer.reply, answer.rest or b""
            connection.leaving = answer.rest is None
            if answer.holds:
                connection.holds = self.was_held = True

    def _said(self, connection: _Connection) -> bool:
        """Send as much as fits; return whether that was all."""
        while connection.to_say:
            try:
                connection.to_say = connection.to_say[connection.link.send(connection.to_say) :]
            except BlockingIOError:
                return False
        return True

    def _lose_patience(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for one in list(self._connections):
            if one.listening.patience_ns is not None and now_ns - one.since_ns > one.listening.patience_ns:
                self._dismiss(one)

    def _listen_again(self) -> None:
        if self._resting and self._clock.monotonic_ns() >= self._rest_until_ns:
            for listening in self._resting:
                self._selector.register(listening.listener, selectors.EVENT_READ, listening)
            self._resting.clear()

    def _due_ns(self, until_ns: int) -> int:
        """Return when there is something to do without an event, at the latest `until_ns`."""
        limits = (
            one.since_ns + one.listening.patience_ns + 1
            for one in self._connections
            if one.listening.patience_ns is not None
        )
        return min([until_ns, *limits, *([self._rest_until_ns] if self._resting else [])])

    def _dismiss(self, connection: _Connection) -> None:
        self._selector.unregister(connection.link)
        self._connections.remove(connection)
        connection.link.close()

    def close(self) -> None:
        """Close all sockets. Closing again does nothing."""
        for connection in list(self._connections):
            self._dismiss(connection)
        for listening in self._listening:
            listening.listener.close()
        self._listening.clear()
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
