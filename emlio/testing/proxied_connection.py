"""One connection through the fault-injecting proxy: two sockets, and the bytes between them.

Covers: moving bytes both ways with one buffer each, ends of either side passed on as they came (FIN as FIN, RST as RST), what
a fault does to the bytes and to the sockets. Does not cover: which faults there are (emlio.testing.proxy).
"""

import socket
import struct
import time
from collections import Counter
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector

from emlio.testing.traffic import Course, Marks, Pace

__all__ = ["Connection", "Wire"]

_DOWN_BYTES = 256 << 10
_UP_BYTES = 16 << 10
_AT_ONCE = struct.pack("ii", 1, 0)


class Wire:
    """What all connections of a proxy share. Used by the proxy's thread.

    Attributes:
        selector: wakes the thread; a socket's data is the function to call with its events.
        connections: those that are open.
        paused: those that wait for the pace, in the order in which they get their turn.
        marks: where something happens.
        pace: how fast bytes may go to ranks; None for as fast as they can.
        dropping: whether bytes vanish.
        faults: what took place so far.
        forwarded_bytes: gone to ranks so far.
        heard: what came of each connection and each way; None where that is not kept.
    """

    def __init__(self, selector: BaseSelector, *, keeps: bool = False) -> None:
        self.selector = selector
        self.heard: list[tuple[Course, bytearray]] | None = [] if keeps else None
        self.connections: set[Connection] = set()
        self.paused: dict[Connection, None] = {}
        self.marks = Marks()
        self.pace: Pace | None = None
        self.dropping = False
        self.faults: Counter[str] = Counter()
        self.forwarded_bytes = 0


class _Way:
    """One direction: bytes that came from `source` and did not go to `sink` yet.

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
        """How many bytes there are."""
        return self._end - self._begin

    def fill(self, source: socket.socket) -> bool:
        """Read, when it is empty; False once the source sends nothing more. Raises OSError where it was reset."""
        self._begin, self._end = 0, 0
        try:
            self._end = source.recv_into(self._memory)
        except BlockingIOError:
            return True
        if self._heard is not None:
            self._heard += self._memory[: self._end]
        return self._end > 0

    def bytes_ahead(self, most: int) -> memoryview:
        """The next bytes, at most so many."""
        return self._memory[self._begin : min(self._end, self._begin + most)]

    def drop(self, count: int) -> None:
        """The next bytes are gone."""
        self._begin += count


class Connection:
    """A rank's connection and the one to the daemon that belongs to it. Used by the proxy's thread."""

    def __init__(self, rank: socket.socket, daemon: socket.socket | None, course: Course, wire: Wire) -> None:
        """See the class; `daemon` is one that is being connected, or None where all that comes is swallowed."""
        self._rank = rank
        self._daemon = daemon
        self._wire = wire
        self._up = _Way(Course.TO_DAEMON, _UP_BYTES, wire)
        self._down = _Way(course, _DOWN_BYTES, wire)
        self._connecting = daemon is not None
        self._half_open = False
        self._lost = False
        wire.connections.add(self)
        if daemon is None:
            self._lose()
        self._watch()

    # ---- what happens to it ---------------------------------------------------------------------------------------

    def on_rank(self, events: int) -> None:
        """The rank's side can be read or written."""
        if events & EVENT_WRITE:
            self._pour(self._down)
        if events & EVENT_READ and not self._rank_closed:
            self._take(self._up)
        self._watch()

    def on_daemon(self, events: int) -> None:
        """The daemon's side can be read or written."""
        daemon = self._daemon
        if daemon is None:
            return
        if self._connecting:
            if daemon.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self.reset()  # nobody listens there: what the host itself would answer
                return
            self._connecting = False
        if events & EVENT_WRITE:
            self._pour(self._up)
        if events & EVENT_READ and self._daemon is not None:
            self._take(self._down)
        self._watch()

    def go_on(self) -> None:
        """The faults are others than before."""
        self._pour(self._down)
        self._pour(self._up)
        self._watch()

    # ---- faults ---------------------------------------------------------------------------------------------------

    def vanish(self) -> None:
        """What is under way is lost."""
        for way in (self._down, self._up):
            if way.waiting:
                self._swallow(way)
        self._watch()

    def half_open(self) -> bool:
        """Reset the daemon's side; the rank hears nothing of it, nor of anything else. False where there was none."""
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
        """Faults are over: a connection with a hole in it ends, others go on."""
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

    def _take(self, way: _Way) -> None:
        """Read what came one way and send it on."""
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
        elif self._wire.dropping:
            way.ended = True  # the news of it vanishes too
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
        """Send on as much as can be."""
        while way.waiting:
            if self._wire.dropping or self._half_open:
                self._swallow(way)
                return
            sink = self._daemon if way is self._up else self._rank
            if sink is None or self._connecting or not self._send(way, sink):
                return

    def _send(self, way: _Way, sink: socket.socket) -> bool:
        """Send on some bytes; False where no more can go now."""
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
        """Have the thread woken for what each side can be asked to do now."""
        if self not in self._wire.connections:
            return
        up, down = self._up, self._down
        rank = 0 if up.ended or up.waiting or self._connecting else EVENT_READ
        if down.waiting and self not in self._wire.paused:
            rank |= EVENT_WRITE
        self._watch_for(self._rank, rank)
        if self._daemon is not None:
            daemon = 0 if down.ended or down.waiting or self._connecting else EVENT_READ
            if self._connecting or up.waiting:
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
        self._wire.connections.discard(self)
        self._wire.paused.pop(self, None)


def _reset(side: socket.socket) -> None:
    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    side.close()
