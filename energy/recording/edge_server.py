"""The recorder's Unix socket, where processes of its node request readings and hold the recorder."""

import os
import selectors
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from emlio.clock import Clock
from emlio.energy.recording.edge import HOLD, READ, SCHEMA, short_address
from emlio.energy.values.reading import Reading
from emlio.energy.values.run import Run
from emlio.errors import ConfigError
from emlio.waker import Waker

__all__ = ["EdgeServer", "listen"]

_MOST_AT_ONCE = 64
"""The listen backlog; more than a node has ranks. The kernel refuses further connections."""

_MOST_CONNECTIONS = 32

_MOST_REQUEST_BYTES = 8192
_PIECE_BYTES = 4096


class _Connection:
    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.heard = b""
        self.to_say = b""
        self.leaving = False
        self.holds = False


class EdgeServer:
    """Answers requests while its thread waits.

    One thread owns it. `wake` may be called from any thread and from signal handlers.

    Attributes:
        was_held: whether any connection ever held the recorder.
    """

    def __init__(self, clock: Clock) -> None:
        """Create a server without a socket."""
        self.was_held = False
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._waker = Waker()
        self._selector.register(self._waker, selectors.EVENT_READ, None)
        self._listener: socket.socket | None = None
        self._connections: list[_Connection] = []
        self._about: dict[str, object] = {}
        self._read: Callable[[], Reading | None] = lambda: None
        self._woken = False

    def open(
        self, listener: socket.socket, run: Run, *, file: Path, number: int, read: Callable[[], Reading | None]
    ) -> None:
        """Serve a socket from now on, and close it at the end.

        Args:
            listener: a listening socket.
            run: the recording.
            file: its file.
            number: its number in the file.
            read: makes a reading now; returns None if it was called too often.
        """
        about = {"schema": SCHEMA, "node": run.node, "boot": run.boot, "file": str(file), "number": number}
        self._about = {**about, "devices": run.devices}
        self._read = read
        listener.setblocking(False)
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, listener)

    def wait(self, until_ns: int) -> None:
        """Serve until that moment, or until woken."""
        while not self._woken and (now_ns := self._clock.monotonic_ns()) < until_ns:
            for key, ready in self._selector.select((until_ns - now_ns) / 1e9):
                if key.data is None:
                    self._woken = True
                elif isinstance(key.data, _Connection):
                    self._serve(key.data, ready)
                else:
                    self._welcome(key.data)
        if self._woken:
            self._waker.rest()
            self._woken = False

    @property
    def held(self) -> bool:
        """True while a connection holds the recorder."""
        return any(one.holds for one in self._connections)

    def wake(self) -> None:
        """Make `wait` return, now or the next time."""
        self._waker.wake()

    def _welcome(self, listener: socket.socket) -> None:
        try:
            link, _ = listener.accept()
        except OSError:
            return  # the connection is gone again
        if len(self._connections) >= _MOST_CONNECTIONS:
            link.close()
            return
        link.setblocking(False)
        connection = _Connection(link)
        self._connections.append(connection)
        self._selector.register(link, selectors.EVENT_READ, connection)

    def _serve(self, connection: _Connection, ready: int) -> None:
        try:
            if ready & selectors.EVENT_READ:
                piece = connection.link.recv(_PIECE_BYTES)
                connection.heard += piece
                if not piece or len(connection.heard) > _MOST_REQUEST_BYTES:
                    self._dismiss(connection)
                    return
            self._converse(connection)
        except BlockingIOError:
            return
        except OSError:
            self._dismiss(connection)

    def _converse(self, connection: _Connection) -> None:
        """Answer requests one after the other.

        While a reply is pending, nothing more is received.
        """
        while True:
            with suppress(BlockingIOError):
                while connection.to_say:
                    connection.to_say = connection.to_say[connection.link.send(connection.to_say) :]
            if connection.to_say:
                self._selector.modify(connection.link, selectors.EVENT_WRITE, connection)
                return
            if connection.leaving:
                self._dismiss(connection)
                return
            question, end, rest = connection.heard.partition(b"\n")
            if not end:
                self._selector.modify(connection.link, selectors.EVENT_READ, connection)
                return
            connection.heard = rest
            connection.to_say = msgspec.json.encode(self._answer(connection, question + end)) + b"\n"

    def _answer(self, connection: _Connection, question: bytes) -> dict[str, object]:
        if question == HOLD:
            connection.holds = self.was_held = True
            return {"schema": SCHEMA, "held": True}
        if question != READ:
            connection.leaving = True
            return {"schema": SCHEMA, "error": "unknown", "text": "must be the word 'read' or 'hold'"}
        reading = self._read()
        if reading is None:
            return {"schema": SCHEMA, "error": "too-often", "text": "too many requests, ask less often"}
        return {**self._about, "reading": reading}

    def _dismiss(self, connection: _Connection) -> None:
        self._selector.unregister(connection.link)
        self._connections.remove(connection)
        connection.link.close()

    def close(self) -> None:
        """Close all sockets. Closing again does nothing."""
        for connection in list(self._connections):
            self._dismiss(connection)
        if self._listener is not None:
            self._listener.close()
        self._selector.close()
        self._waker.close()

    def __enter__(self) -> Self:
        """Itself, for `with`."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close."""
        self.close()


def listen(path: Path, *, group: int | None = None) -> socket.socket:
    """Return a listening Unix socket for this user, or also for a group.

    A socket that a killed recorder left at the path is removed.

    Raises:
        ConfigError: the path is taken, or cannot be used.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        _clear(path)
        before = os.umask(0o177)
        try:
            with short_address(path) as address:
                listener.bind(address)
        finally:
            os.umask(before)
        if group is not None:
            os.chown(path, -1, group)
            path.chmod(0o660)
        listener.listen(_MOST_AT_ONCE)
    except OSError as error:
        listener.close()
        raise ConfigError(f"the socket {path} cannot be created: {error}") from error
    except BaseException:
        listener.close()
        raise
    return listener


def _clear(path: Path) -> None:
    """Remove a socket on which no process listens; refuse anything else."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigError(f"the socket {path} cannot be created: a file of another kind exists there")
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(1.0)
        try:
            with short_address(path) as address:
                link.connect(address)
        except ConnectionRefusedError:
            path.unlink()
            return
    raise ConfigError(f"the socket {path} cannot be created: another recorder already uses it")
