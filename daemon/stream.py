"""A stream while it runs: what has been read, what waits for a lane, and how much memory that may take.

Covers: the hand-over between the reading threads and the sending thread, with its bound in bytes. Does not cover: the threads
(emlio.daemon.readers, emlio.daemon.sender).
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock

import numpy as np
import numpy.typing as npt

from emlio.daemon.ledger import Ledger
from emlio.daemon.pace_keeper import PaceKeeper
from emlio.daemon.search import Search
from emlio.errors import EmlioError
from emlio.reading.buffers import BufferPool
from emlio.reading.course import MessagePlan
from emlio.reading.feed import Feed
from emlio.reading.gather import Gatherer
from emlio.wire.data import tail_room

__all__ = ["Outgoing", "Stream", "StreamFailure", "held_bytes"]

_MESSAGE_OVERHEAD_BYTES = 4096
_RECORD_OVERHEAD_BYTES = 28
"""Memory of a message besides its bytes: its objects, measured at 2.1 kB for a single tiny record, with a margin; and three
numbers of its arrays and a size for each record."""

_EPOCHS_AHEAD = 2
"""A stream of few records is read no further ahead of what the lanes took: a later epoch may never be asked for."""


def held_bytes(payload_bytes: int, records: int) -> int:
    """Return the memory that a message is counted with while the daemon holds it."""
    return payload_bytes + tail_room(records) + _MESSAGE_OVERHEAD_BYTES + _RECORD_OVERHEAD_BYTES * records


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outgoing:
    """A message that is ready for any lane.

    Attributes:
        message: what it holds.
        sizes: of its records, packed as the header has them.
        memory: its payload, and behind it room for the tail of the wire's frame.
        apart: there is no such room: the memory is a slice of a mapped file.
    """

    message: MessagePlan
    sizes: bytes
    memory: npt.NDArray[np.uint8]
    apart: bool = False

    @property
    def payload(self) -> memoryview:
        """The records. The view keeps the memory, which a NumPy slice would not."""
        return self.memory.data[: self.message.size_bytes]


class Stream:
    """One rank's stream at this daemon.

    Reading threads call `produce`, one at a time; the sending thread calls `first` and `sent`; `close` may come from anywhere.
    Bytes count from before they are read until libzmq has given the buffer back.

    Attributes:
        search: for the next record, where the plan has none for a while.
        searching: whether the last call of `produce` found none.
    """

    def __init__(
        self,
        *,
        session: int,
        stream: int,
        feed: Feed,
        pool: BufferPool,
        ledger: Ledger,
        limit_bytes: int,
        label: str,
        dataset: str = "",
        pace: PaceKeeper | None = None,
    ) -> None:
        """See the class.

        Args:
            session: the session it belongs to.
            stream: which opening of the session's stream.
            feed: where its messages come from.
            pool: where their memory comes from.
            ledger: of what all streams hold.
            limit_bytes: the most that may be in flight, whatever the daemon's memory allows: more than hides a pause of
                a thread only drives the buffers out of the cache.
            label: whose it is, for the log.
            dataset: what is read; its streams share threads.
            pace: decides how far to read ahead below that; without it the stream races.
        """
        self.session = session
        self.stream = stream
        self.label = label
        self.dataset = dataset
        self.closed = False
        self.search = Search()
        self.searching = False
        self._feed = feed
        self._pool = pool
        self._ledger = ledger
        self._limit_bytes = limit_bytes
        self._pace = pace
        self._resume_bytes = 0
        self._being_read_bytes = 0
        self._ready: deque[Outgoing] = deque()
        self._in_flight_bytes = 0
        # Reentrant: the collector may drop a message, and so give its memory back, in the midst of this.
        self._lock = RLock()
        self._planned: MessagePlan | None = None
        self._parked = False
        self._on_room: Callable[[Stream], None] | None = None

    @property
    def parked(self) -> bool:
        """Whether reading waits for the network to take what was read."""
        return self._parked

    @property
    def in_flight_bytes(self) -> int:
        """Bytes read, being read, or not yet taken by the kernel."""
        return self._in_flight_bytes

    def produce(self, gatherer: Gatherer, budget_bytes: int, on_room: "Callable[[Stream], None]") -> bool:
        """Read one message if `budget_bytes` allow it; else return False, and `on_room` is called when they may again.

        True also where a stretch of the plan had no record: then the stream is `searching`, and goes on with the next call.
        """
        message = self._planned or self._next(gatherer)
        if message is None:
            return self._searches_on(on_room)
        self._planned = message
        size_bytes = held_bytes(message.size_bytes, message.count)
        budget_bytes = min(budget_bytes, self._limit_bytes)
        with self._lock:
            if self.closed:
                return False
            if self._pace is not None:
                marks = self._pace.marks(budget_bytes)
                low_bytes, budget_bytes = marks.low_bytes, marks.high_bytes
            else:
                # Going on only when there is room for several saves waking a thread for each message.
                low_bytes = budget_bytes - budget_bytes // 4 - size_bytes
            # One message always fits, however large: a bound below a record's length must not stop the stream.
            first = not self._in_flight_bytes
            full = not first and self._in_flight_bytes + size_bytes > budget_bytes
            if full:
                return self._park(low_bytes, on_room)
            if self._is_ahead(message.epoch) or not self._ledger.take(size_bytes, always=first):
                # It is tried again when any of its own bytes are free.
                return self._park(self._in_flight_bytes - 1, on_room)
            self._in_flight_bytes += size_bytes
            self._being_read_bytes = size_bytes
        self._planned = None
        try:
            memory = self._feed.borrow(message, gatherer, self)
        except BaseException:
            self._being_read_bytes = 0
            self.released(size_bytes)  # or a drain would wait for them
            raise
        apart = memory is not None
        if memory is None:
            memory = self._take(message.size_bytes + tail_room(message.count), size_bytes)
            self._feed.read(message, gatherer, memory[: message.size_bytes])
        else:
            besides = size_bytes - message.size_bytes  # a slice gives back its own bytes only, and has no tail
            self._ledger.give_back(besides)
            with self._lock:
                self._being_read_bytes -= besides
                self._in_flight_bytes -= besides
        outgoing = Outgoing(message=message, sizes=message.sizes.astype("<u4").tobytes(), memory=memory, apart=apart)
        with self._lock:
            self._being_read_bytes = 0
            if not self.closed:
                self._ready.append(outgoing)
            if self._pace is not None:
                self._pace.made()
        return True

    def _next(self, gatherer: Gatherer) -> MessagePlan | None:
        began_ns = time.monotonic_ns()
        message = self._feed.next(gatherer)
        self.searching = message is None and not self._feed.ended
        if self.searching:
            self.search.missed(time.monotonic_ns() - began_ns)
        else:
            self.search.found()
        return message

    def _searches_on(self, on_room: "Callable[[Stream], None]") -> bool:
        with self._lock:
            if self.closed or not self.searching:
                return False  # the rank gets nothing from here, now or later
            if self._is_ahead(self._feed.searched_epoch):
                return self._park(self._in_flight_bytes - 1, on_room)
            return True

    def _is_ahead(self, epoch: int) -> bool:
        """Whether what the lanes did not take yet is of epochs long before this one."""
        return bool(self._ready) and epoch > self._ready[0].message.epoch + _EPOCHS_AHEAD

    def _park(self, resume_bytes: int, on_room: "Callable[[Stream], None]") -> bool:
        """Read no more until so few bytes are in flight; False."""
        self._resume_bytes = resume_bytes
        self._parked, self._on_room = True, on_room
        return False

    def released(self, size_bytes: int) -> None:
        """Memory of a message is free again; from any thread."""
        self._ledger.give_back(size_bytes)
        with self._lock:
            self._in_flight_bytes -= size_bytes
            roomy = self._in_flight_bytes <= max(self._resume_bytes, 0)
            wake = self._on_room if self._parked and roomy and not self.closed else None
            if wake is not None:
                self._parked = False
            if self._pace is not None:
                dry = self._in_flight_bytes <= self._being_read_bytes
                self._pace.taken(size_bytes, dry=dry, woken=wake is not None)
        if wake is not None:
            wake(self)

    def take_memory(self, size_bytes: int) -> npt.NDArray[np.uint8]:
        """For another form of a message that was read; it counts as in flight until nobody refers to it any more."""
        counted_bytes = size_bytes + _MESSAGE_OVERHEAD_BYTES
        self._ledger.take(counted_bytes, always=True)
        with self._lock:
            self._in_flight_bytes += counted_bytes
        return self._take(size_bytes, counted_bytes)

    def _take(self, size_bytes: int, counted_bytes: int) -> npt.NDArray[np.uint8]:
        return self._pool.take(size_bytes, lambda _: self.released(counted_bytes))

    def first(self) -> Outgoing | None:
        """The next message to send; it stays until `sent`."""
        ready = self._ready  # `close` may put another one in its place at any moment
        return ready[0] if ready else None

    def sent(self) -> None:
        """The first message was handed to a lane."""
        with self._lock:
            # Nothing is there when the stream was closed while it was handed over. The message itself gives its
            # buffer back when it is dropped, which takes the lock again: the caller still refers to it.
            if self._ready:
                self._ready.popleft()

    def close(self) -> None:
        """Drop what is ready; what reads now finishes first. Closing again does nothing."""
        self._feed.stop()
        with self._lock:
            self.closed = True
            self._parked = False
            dropped, self._ready = self._ready, deque()
        # Buffers give themselves back when dropped, which takes the lock again: so outside of it.
        dropped.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFailure:
    """A stream ended by an error; the rank must hear of it."""

    stream: Stream
    error: EmlioError
