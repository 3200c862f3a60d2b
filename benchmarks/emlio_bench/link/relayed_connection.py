"""One connection through the relay: two sockets, with a delay both ways.

Covers: opening, moving bytes, passing on the end of a stream as it came (FIN as FIN, RST as RST),
the limit of bytes in transit. Does not cover: listening, waiting (emlio_bench.link.relaying).
"""

import errno
import socket
import struct
from collections import deque
from dataclasses import dataclass
from enum import Enum
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector
from typing import Final

from emlio_bench.link.line import Line

__all__ = ["Connection", "Parcel", "Step", "Wires"]

_PIECE_BYTES: Final = 256 << 10
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_CONNECTING: Final = (0, errno.EINPROGRESS)


class Step(Enum):
    """The effect of a parcel on its connection when it arrives."""

    OPEN = "open"
    TO_STORAGE = "to-storage"
    TO_TRAINING = "to-training"


@dataclass(frozen=True, slots=True)
class Parcel:
    """A unit that crosses a line.

    Attributes:
        connection: connection of the parcel.
        step: effect of the parcel.
        data: bytes; empty for the end of the stream.
    """

    connection: "Connection"
    step: Step
    data: bytes

    def __len__(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """The objects that all connections of a relay share.

    Attributes:
        selector: selector of all sockets. The data of a socket is its connection.
        to_storage: line from clients to servers.
        to_training: line from servers to clients.
        most_bytes: most bytes of one connection and direction in transit, or waiting at the sink.
    """

    selector: BaseSelector
    to_storage: Line[Parcel]
    to_training: Line[Parcel]
    most_bytes: int


class _Way:
    """One direction of a connection.

    Attributes:
        ended: whether the source has ended its stream.
        passed: whether the end was passed on to the sink.
    """

    def __init__(self, connection: "Connection", step: Step, line: Line[Parcel], most_bytes: int) -> None:
        self._connection = connection
        self._step = step
        self.ended = self.passed = False
        self._line = line
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._arrived: deque[memoryview] = deque()
        self._end_arrived = False

    @property
    def has_room(self) -> bool:
        return not self.ended and self._held_bytes < self._most_bytes

    @property
    def has_arrived(self) -> bool:
        return bool(self._arrived)

    def take(self, source: socket.socket, now_ns: int) -> None:
        """Read a piece and put it on the line. Raises OSError if the source was reset."""
        try:
            data = source.recv(_PIECE_BYTES)
        except BlockingIOError:
            return
        self.ended = not data
        self._held_bytes += len(data)
        self._line.take(Parcel(self._connection, self._step, data), len(data), now_ns)

    def arrive(self, data: bytes) -> None:
        """Queue a piece that has crossed the line."""
        if data:
            self._arrived.append(memoryview(data))
        else:
            self._end_arrived = True

    def hand_over(self, sink: socket.socket) -> None:
        """Write as much as the sink accepts. Raises OSError if the sink was reset."""
        while self._arrived:
            piece = self._arrived[0]
            try:
                count = sink.send(piece)
            except BlockingIOError:
                return
            self._held_bytes -= count
            if count < len(piece):
                self._arrived[0] = piece[count:]
                return
            self._arrived.popleft()
        if self._end_arrived and not self.passed:
            self.passed = True
            sink.shutdown(socket.SHUT_WR)


class Connection:
    """A client's connection, and its connection to the server, made after the delay of the line."""

    def __init__(self, client: socket.socket, target: tuple[str, int], wires: Wires) -> None:
        """Create a connection. Nothing is read before `begin`.

        Args:
            client: accepted socket.
            target: address of the server.
            wires: shared objects of the relay.
        """
        self._client = client
        self._server: socket.socket | None = None
        self._connecting = self._begun = self._closed = False
        self._target = target
        self._wires = wires
        self._up = _Way(self, Step.TO_STORAGE, wires.to_storage, wires.most_bytes)
        self._down = _Way(self, Step.TO_TRAINING, wires.to_training, wires.most_bytes)
        _prepare(client)

    def begin(self, now_ns: int) -> None:
        """Start reading from the client, at the time when its handshake would end on a real link.

        The client's data follows the last part of the handshake over the line.
        """
        if not self._closed:
            self._begun = True
            self._wires.to_storage.take(Parcel(self, Step.OPEN, b""), 0, now_ns)
            self._watch()

    def on_event(self, side: socket.socket, events: int, now_ns: int) -> None:
        """Handle a socket that is ready to be read or written."""
        try:
            if side is self._client:
                self._move(self._client, events, self._up, self._down, now_ns)
            else:
                if self._connecting:
                    self._connecting = False
                    if side.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                        raise ConnectionRefusedError
                self._move(side, events, self._down, self._up, now_ns)
        except OSError:
            self.reset()
        self._watch()

    def on_arrival(self, step: Step, data: bytes) -> None:
        """Handle a parcel that has crossed the line."""
        if self._closed:
            return
        try:
            if step is Step.OPEN:
                self._connect()
            elif step is Step.TO_TRAINING:
                self._down.arrive(data)
                self._down.hand_over(self._client)
            else:
                self._up.arrive(data)
                if self._server is not None and not self._connecting:
                    self._up.hand_over(self._server)
        except OSError:
            self.reset()
        self._watch()

    def reset(self) -> None:
        """Reset the connection on both sides."""
        for side in (self._client, self._server):
            if side is not None and not self._closed:
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._close()

    def _connect(self) -> None:
        """Connect to the server, at the time when its handshake would end on a real link."""
        self._server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        _prepare(self._server)
        self._connecting = True
        if self._server.connect_ex(self._target) not in _CONNECTING:
            raise ConnectionRefusedError

    def _move(self, side: socket.socket, events: int, away: _Way, towards: _Way, now_ns: int) -> None:
        if events & EVENT_READ and away.has_room:
            away.take(side, now_ns)
        if events & EVENT_WRITE:
            towards.hand_over(side)

    def _watch(self) -> None:
        if self._closed:
            return
        if self._up.passed and self._down.passed:
            self._close()
            return
        self._watch_side(self._client, self._begun and self._up.has_room, self._down.has_arrived)
        if self._server is not None:
            readable = self._down.has_room and not self._connecting
            self._watch_side(self._server, readable, self._up.has_arrived or self._connecting)

    def _watch_side(self, side: socket.socket, readable: bool, writable: bool) -> None:
        events = EVENT_READ * readable | EVENT_WRITE * writable
        selector = self._wires.selector
        watched = selector.get_map().get(side)
        if watched is None:
            if events:
                selector.register(side, events, self)
        elif not events:
            selector.unregister(side)
        elif watched.events != events:
            selector.modify(side, events, self)

    def _close(self) -> None:
        self._closed = True
        for side in (self._client, self._server):
            if side is not None and side.fileno() >= 0:
                if side in self._wires.selector.get_map():
                    self._wires.selector.unregister(side)
                side.close()


def _prepare(side: socket.socket) -> None:
    side.setblocking(False)
    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
