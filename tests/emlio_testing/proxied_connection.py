"""One connection through the fault-injecting proxy: two sockets, and the bytes between them."""

import socket
import struct
import time
from collections import Counter
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector

from emlio_testing.traffic import Course, Marks, Pace

__all__ = ["Connection", "Wire"]

_DOWN_BYTES = 256 << 10
_UP_BYTES = 16 << 10
_AT_ONCE = struct.pack("ii", 1, 0)


class Wire:
    """State that all connections of a proxy share. Used by the proxy's thread.

    Attributes:
        selector: wakes the thread; a socket's data is the function to call with its events.
        connections: all open connections, in the order they came.
        paused: those that wait for the pace, in the order of their turns.
        marks: the positions of later faults.
        pace: the rate of bytes to ranks; None for no limit.
        dropping: bytes of connections of these courses are dropped.
        held: bytes of these courses are read and not sent on yet.
        faults: the number of faults so far, by name.
        forwarded_bytes: the bytes sent to ranks so far.
        heard: what came over each connection in each direction; None if that is not kept.
    """

    def __init__(self, selector: BaseSelector, *, keeps: bool = False) -> None:
        self.selector = selector
        self.heard: list[tuple[Course, bytearray]] | None = [] if keeps else None
        self.connections: dict[Connection, None] = {}
        self.paused: dict[Connection, None] = {}
        self.marks = Marks()
        self.pace: Pace | None = None
        self.dropping: frozenset[Course] = frozenset()
        self.held: frozenset[Course] = frozenset()
        self.faults: Counter[str] = Counter()
        self.forwarded_bytes = 0


class _Way:
    """One direction: bytes that came from `source` and were not sent to `sink` yet.

    Attributes:
        ended: whether nothing more comes.
    """

    def __init__(self, course: Course, capacity: int, wire: Wire) -> None:
        self.course = course
        self._heard: bytearray | None = None
        if wire.heard is not None:
            self._heard = bytearray()
            wire.heard.append((course, self._heard))
        self.ended = False
        self._memory = memoryview(bytearray(capacity))
        self._begin = self._end = 0

    @property
    def waiting(self) -> int:
        """The number of bytes in the buffer."""
        return self._end - self._begin

    def fill(self, source: socket.socket) -> bool:
        """Read into the empty buffer; return False once the source has ended.

        Raises:
            OSError: the source was reset.
        """
        self._begin, self._end = 0, 0
        try:
            self._end = source.recv_into(self._memory)
        except BlockingIOError:
            return True
        if self._heard is not None:
            self._heard += self._memory[: self._end]
        return self._end > 0

    def bytes_ahead(self, most: int) -> memoryview:
        """Return the next bytes, at most `most`."""
        return self._memory[self._begin : min(self._end, self._begin + most)]

    def drop(self, count: int) -> None:
        """Remove the next bytes."""
        self._begin += count


class Connection:
    """A rank's connection and its connection to the daemon. Used by the proxy's thread."""

    def __init__(self, rank: socket.socket, daemon: socket.socket | None, course: Course, wire: Wire) -> None:
        """See the class.

        `daemon` is a socket that is being connected, or None if all that comes is dropped.
        """
        self._rank = rank
        self._daemon = daemon
        self._wire = wire
        self._up = _Way(Course.CREDIT if course is Course.DATA else Course.TO_DAEMON, _UP_BYTES, wire)
        self._down = _Way(course, _DOWN_BYTES, wire)
        self._connecting = daemon is not None
        self._half_open = False
        self._lost = False
        self._drops = False
        wire.connections[self] = None
        if daemon is None:
            self._lose()
        self._watch()

    # ---- events -----------------------------------------------------------------------------------------------------

    def on_rank(self, events: int) -> None:
        """Handle the rank's socket, which can be read or written."""
        if events & EVENT_WRITE:
            self._pour(self._down)
        if events & EVENT_READ and not self._rank_closed:
            self._take(self._up)
        self._watch()

    def on_daemon(self, events: int) -> None:
        """Handle the daemon's socket, which can be read or written."""
        daemon = self._daemon
        if daemon is None:
            return
        if self._connecting:
            if daemon.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self.reset()  # no process listens there: the host itself would answer so
                return
            self._connecting = False
        if events & EVENT_WRITE:
            self._pour(self._up)
        if events & EVENT_READ and self._daemon is not None:
            self._take(self._down)
        self._watch()

    def go_on(self) -> None:
        """Continue after the faults have changed."""
        self._pour(self._down)
        self._pour(self._up)
        self._watch()

    # ---- faults ---------------------------------------------------------------------------------------------------

    @property
    def is_lane(self) -> bool:
        """True if the connection leads to a data port."""
        return self._down.course is Course.DATA

    def vanish(self, *, for_good: bool = False) -> None:
        """Drop the bytes under way; with `for_good`, also all later ones until `heal`."""
        self._drops = self._drops or for_good
        for way in (self._down, self._up):
            if way.waiting:
                self._swallow(way)
        self._watch()

    def half_open(self) -> bool:
        """Reset the daemon's side, while the rank is told nothing more.

        Returns:
            False if there was no daemon's side.
        """
        daemon, self._daemon = self._daemon, None
        if daemon is None:
            return False
        self._unwatch(daemon)
        _reset(daemon)
        self._half_open, self._connecting = True, False
        for way in (self._down, self._up):
            way.drop(way.waiting)
        self._watch()
        return True

    def heal(self) -> None:
        """End the faults: a connection that lost bytes is reset, others continue."""
        self._drops = False
        if self._lost and not self._half_open:
            self.reset()
        else:
            self.go_on()

    def reset(self) -> None:
        """Reset both sides."""
        self._end(at_once=True)

    # ---- inside ---------------------------------------------------------------------------------------------------

    @property
    def _rank_closed(self) -> bool:
        return self._rank.fileno() < 0

    @property
    def _dropping(self) -> bool:
        return self._drops or self._down.course in self._wire.dropping

    def _held(self, way: _Way) -> bool:
        return way.course in self._wire.held

    def _take(self, way: _Way) -> None:
        """Read what came in one direction and send it on."""
        source = self._rank if way is self._up else self._daemon
        if source is None or way.waiting or way.ended:
            return
        try:
            more, broken = way.fill(source), False
        except OSError:
            more, broken = False, True
        if more:
            self._pour(way)
        elif self._half_open:
            self._end(at_once=broken)
        elif self._dropping:
            way.ended = True  # the end of the connection is dropped, too
            self._lose()
        elif broken:
            self.reset()
        else:
            self._pass_end(way)

    def _pass_end(self, way: _Way) -> None:
        way.ended = True
        sink = self._daemon if way is self._up else self._rank
        if sink is None or (self._up.ended and self._down.ended):
            self._end(at_once=False)
            return
        try:
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            self.reset()

    def _pour(self, way: _Way) -> None:
        """Send on as much as possible."""
        while way.waiting:
            if self._dropping or self._half_open:
                self._swallow(way)
                return
            sink = self._daemon if way is self._up else self._rank
            if sink is None or self._connecting or self._held(way) or not self._send(way, sink):
                return

    def _send(self, way: _Way, sink: socket.socket) -> bool:
        """Send on some bytes; return False if no more can be sent now."""
        marks = self._wire.marks
        most = marks.room(way.course, way.waiting)
        pace = self._wire.pace if way is self._down else None
        if pace is not None:
            most = min(most, pace.allowed(time.monotonic_ns()))
            if not most:
                self._wire.paused.setdefault(self)
                return False
        piece = way.bytes_ahead(most)
        mask = marks.mask(way.course)
        try:
            count = sink.send(bytes((piece[0] ^ mask,)) if mask else piece)
        except BlockingIOError:
            return False
        except OSError:
            self.reset()
            return False
        way.drop(count)
        if way is self._down:
            self._wire.forwarded_bytes += count
        if pace is not None:
            pace.went(count)
        for brought in marks.went(way.course, count):
            self._wire.faults["corrupt_after" if brought.mask else "cut_after"] += 1
            if not brought.mask:
                self.reset()
                return False
        return True

    def _swallow(self, way: _Way) -> None:
        way.drop(way.waiting)
        if not self._half_open:
            self._lose()

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._wire.faults["drop"] += 1

    def _watch(self) -> None:
        """Register each socket for the events that can be handled now."""
        if self not in self._wire.connections:
            return
        up, down = self._up, self._down
        rank = 0 if up.ended or up.waiting or self._connecting else EVENT_READ
        if down.waiting and self not in self._wire.paused and not self._held(down):
            rank |= EVENT_WRITE
        self._watch_for(self._rank, rank)
        if self._daemon is not None:
            daemon = 0 if down.ended or down.waiting or self._connecting else EVENT_READ
            if self._connecting or (up.waiting and not self._held(up)):
                daemon |= EVENT_WRITE
            self._watch_for(self._daemon, daemon)

    def _watch_for(self, side: socket.socket, events: int) -> None:
        selector = self._wire.selector
        watched = selector.get_map().get(side)
        if watched is None:
            if events:
                selector.register(side, events, self.on_rank if side is self._rank else self.on_daemon)
        elif not events:
            selector.unregister(side)
        elif watched.events != events:
            selector.modify(side, events, watched.data)

    def _unwatch(self, side: socket.socket) -> None:
        if side.fileno() >= 0 and side in self._wire.selector.get_map():
            self._wire.selector.unregister(side)

    def _end(self, *, at_once: bool) -> None:
        for side in (self._rank, self._daemon):
            if side is None or side.fileno() < 0:
                continue
            self._unwatch(side)
            if at_once:
                _reset(side)
            else:
                side.close()
        for way in (self._down, self._up):
            way.drop(way.waiting)
        self._daemon = None
        self._wire.connections.pop(self, None)
        self._wire.paused.pop(self, None)


def _reset(side: socket.socket) -> None:
    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    side.close()
