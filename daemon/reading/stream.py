"""A running stream: what has been read and sealed, what waits for a lane, and its memory.

Covers: messages made ready for any lane, the hand-over from the reading threads to the sending
thread, with its limit in bytes. Does not cover: the threads (emlio.daemon.reading.readers,
emlio.daemon.lanes.sender).
"""

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import RLock

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c
from emlio.daemon.reading.read_times import ReadTimes
from emlio.daemon.reading.session_memory import SessionMemory, Taken
from emlio.errors import EmlioError
from emlio.reading.buffers import BufferPool
from emlio.reading.feed import Feed
from emlio.reading.gather import Gatherer
from emlio.reading.message_planner import MessagePlan
from emlio.wire.data import DATA_VERSION, DataHeader, TimedHeader, encode_data_header, tail_room
from emlio.wire.limits import MAX_PAYLOAD_BYTES
from emlio.wire.seal import TAG_BYTES, StreamSeal

__all__ = ["FREE_NS", "Outgoing", "Search", "Stream", "StreamFailure", "StreamLimits", "held_bytes"]

_MESSAGE_OVERHEAD_BYTES = 4608
_RECORD_OVERHEAD_BYTES = 44
"""Memory of a message besides its bytes. Per message: its objects, measured at 2.6 kB for a single
tiny record, with a margin. Per record: five numbers in arrays, and a size."""

_EPOCHS_AHEAD = 2
"""A stream of few records is read at most so many epochs ahead of what the lanes took: a later
epoch may never be asked for."""


FREE_NS = 1_000_000_000
"""The time for which a search runs freely; it looks at ten million records in that time."""

_RESTS = 9
"""After that it rests nine times as long as it works. It still looks at a million records a second,
more than a rank takes."""


class Search:
    """The search for the next record of one stream.

    A stream may own few of the plan's records, and a rank may offer a catalog of which almost nothing
    is held here. Such a search is work without a result, so it must not keep a thread busy forever.

    Attributes:
        rest_ns: the time that it rests now.
    """

    def __init__(self) -> None:
        self.rest_ns = 0
        self._took_ns = 0

    def missed(self, took_ns: int) -> None:
        """Note that a stretch of the plan held no record, and the time it took."""
        self._took_ns += took_ns
        self.rest_ns = _RESTS * took_ns if self._took_ns > FREE_NS else 0

    def found(self) -> None:
        """Note that a record was found: the next search begins anew."""
        self._took_ns = self.rest_ns = 0


def held_bytes(payload_bytes: int, records: int) -> int:
    """Return the memory that a message counts for while the daemon holds it."""
    return payload_bytes + tail_room(records) + _MESSAGE_OVERHEAD_BYTES + _RECORD_OVERHEAD_BYTES * records


class Outgoing(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A message that is ready for any lane.

    Attributes:
        message: the records it holds.
        head: the bytes of its header.
        head_crc: the CRC32C of `head`.
        memory: its payload, and behind it room for the tail of the frame.
        payload_bytes: the bytes of the payload, including the tag of a sealed one.
        apart: whether there is no such room, as the memory is a slice of a mapped file.
    """

    message: MessagePlan
    head: bytes
    head_crc: int
    memory: npt.NDArray[np.uint8]
    payload_bytes: int
    apart: bool = False

    @property
    def payload(self) -> memoryview:
        """The records, clear or sealed.

        The view keeps the memory alive, which a NumPy slice would not.
        """
        return self.memory.data[: self.payload_bytes]

    def with_tail(self, tail: bytes) -> memoryview:
        """Return the frame: the payload, and this tail written behind it.

        No lane may have the message when this is called.
        """
        end = self.payload_bytes + len(tail)
        self.memory.data[self.payload_bytes : end] = tail
        return self.memory.data[:end]


class StreamLimits(msgspec.Struct, kw_only=True, eq=False):
    """The limits of one stream that its rank may change.

    Attributes:
        ready_bytes: the most bytes in flight, whatever the daemon's memory allows. More than what hides a pause of a
            thread only drives the buffers out of the cache.
        message_bytes: the size to which messages are filled.
        paced: whether messages are smaller on a slow lane.
        readers: the threads that read its dataset at the same time; 0 for all. The largest of all streams counts.
    """

    ready_bytes: int
    message_bytes: int = MAX_PAYLOAD_BYTES
    paced: bool = False
    readers: int = 0


class _ClearSlice:
    """The borrower of a slice that is sealed next.

    The slice is returned before the network has anything, so this does not count as sent.
    """

    def __init__(self, give_back: Callable[[int], None]) -> None:
        self._give_back = give_back

    def released(self, size_bytes: int) -> None:
        self._give_back(size_bytes)


class Stream:
    """One rank's stream at this daemon.

    Reading threads call `produce`, one at a time; the sending thread calls `first` and `sent`; any
    thread may call `close`. Bytes count from before they are read until libzmq has returned the
    buffer. Both copies count while a message is sealed.

    Attributes:
        limits: may be changed at any time.
        search: the search for the next record, where the plan has none for a while.
        searching: whether the last call of `produce` found none.
        ended: whether the last message was read.
    """

    def __init__(
        self,
        *,
        session: int,
        stream: int,
        feed: Feed,
        pool: BufferPool,
        memory: SessionMemory,
        limits: StreamLimits,
        label: str,
        dataset: str = "",
        name: str = "",
        job: str = "",
        seal: StreamSeal | None = None,
        times: bool = False,
        read_times: ReadTimes | None = None,
    ) -> None:
        """See the class.

        Args:
            session: the number of its session.
            stream: its number in the session; each opening has another one.
            feed: the source of its messages.
            pool: the source of their memory.
            memory: the memory of all streams of the session.
            limits: as the attribute.
            label: the name of the session, for the log.
            dataset: the key of the dataset's generation; its streams share threads.
            name: the name of the dataset, under which it is counted.
            job: the rank's job; jobs have equal shares.
            seal: seals its payloads; without it they are sent in the clear.
            times: whether headers tell when their records were read.
            read_times: counts how long each message takes to read.
        """
        self.session = session
        self.stream = stream
        self.label = label
        self.dataset = dataset
        self.name = name
        self.job = job
        self.closed = False
        self.search = Search()
        self.searching = False
        self.ended = False
        self._feed = feed
        self._pool = pool
        self._memory = memory
        self.limits = limits
        self._seal = seal
        self._times = times
        self._read_times = read_times or ReadTimes()
        self._number = 0
        self._resume_bytes = 0
        self._ready: deque[Outgoing] = deque()
        self._in_flight_bytes = 0
        # Reentrant: the garbage collector may drop a message, which returns memory, while the lock
        # is held.
        self._lock = RLock()
        self._planned: MessagePlan | None = None
        self._parked = False
        self._on_room: Callable[[Stream], None] | None = None

    @property
    def parked(self) -> bool:
        """True if reading waits for the network to take what was read."""
        return self._parked

    @property
    def in_flight_bytes(self) -> int:
        """The bytes read, being read, or not yet taken by the kernel."""
        return self._in_flight_bytes

    def produce(self, gatherer: Gatherer, budget_bytes: int, on_room: "Callable[[Stream], None]") -> bool:
        """Read one message if `budget_bytes` allow it, and return True.

        Otherwise return False; `on_room` is called when they may allow it again. Returns True also
        if a stretch of the plan had no record: then the stream is `searching`, and continues with
        the next call.
        """
        message = self._planned or self._next(gatherer)
        if message is None:
            return self._searches_on(on_room)
        self._planned = message
        size_bytes = held_bytes(self._wire_bytes(message), message.count)
        share_bytes, budget_bytes = budget_bytes, min(budget_bytes, self.limits.ready_bytes)
        with self._lock:
            if self.closed:
                return False
            self._parked = False
            # To continue only when there is room for several messages saves waking a thread for each.
            low_bytes = budget_bytes - budget_bytes // 4 - size_bytes
            # One message always fits, however large: a limit below a record's size must not stop
            # the stream.
            first = not self._in_flight_bytes
            full = not first and self._in_flight_bytes + size_bytes > budget_bytes
            if full:
                return self._park(low_bytes, on_room)
            if self._is_ahead(message.epoch):
                return self._park(self._in_flight_bytes - 1, on_room)
            taken = self._memory.take(
                size_bytes,
                own_bytes=self._in_flight_bytes,
                share_bytes=share_bytes,
                wake=partial(on_room, self),
            )
            if taken is Taken.FULL:
                # It is tried again when any of its own bytes are free.
                return self._park(self._in_flight_bytes - 1, on_room)
            if taken is Taken.WAITS:
                # Called by the session's memory alone: one thread at a time reads for it.
                return self._park(0, None)
            self._in_flight_bytes += size_bytes
        self._planned = None
        began_ns = time.monotonic_ns()
        memory, apart = self._read(message, gatherer, size_bytes)
        self._read_times.add(time.monotonic_ns() - began_ns)
        header = self._header(message, memory.data[: message.payload_bytes])
        if self._times:
            known = msgspec.structs.asdict(header)
            header = TimedHeader(**known, read_from_ns=began_ns, read_to_ns=time.monotonic_ns())
        head = encode_data_header(header)
        if self._seal is not None:
            memory, apart = self._sealed(self._seal, message, head, memory), False
        outgoing = Outgoing(
            message=message,
            head=head,
            head_crc=crc32c(head),
            memory=memory,
            payload_bytes=self._wire_bytes(message),
            apart=apart,
        )
        self._number += 1
        with self._lock:
            if not self.closed:
                self._ready.append(outgoing)
        return True

    def _wire_bytes(self, message: MessagePlan) -> int:
        """Return the bytes of the payload as it is sent."""
        return message.payload_bytes + (TAG_BYTES if self._seal is not None else 0)

    def _header(self, message: MessagePlan, payload: memoryview) -> DataHeader:
        return DataHeader(
            version=DATA_VERSION,
            session=self.session,
            stream=self.stream,
            number=self._number,
            epoch=message.epoch,
            slot=message.slot,
            count=message.count,
            ids_crc=message.ids_crc,
            sizes=message.sizes.astype("<u4").tobytes(),
            crcs=self._feed.crcs(message, payload),
            notes=len(message.notes),
        )

    def _read(self, message: MessagePlan, gatherer: Gatherer, size_bytes: int) -> tuple[npt.NDArray[np.uint8], bool]:
        """Return the records, and whether they are a slice of a mapped file.

        `size_bytes` are counted for them.
        """
        try:
            borrower = self if self._seal is None else _ClearSlice(self._uncount)
            memory = self._feed.borrow(message, gatherer, borrower)
        except BaseException:
            self.released(size_bytes)  # or a drain would wait for them
            raise
        if memory is not None:
            # A slice returns only its own bytes, and has no tail.
            self._uncount(size_bytes - message.size_bytes)
            return memory, True
        if self._seal is None:
            memory = self._take(message.payload_bytes + tail_room(message.count), size_bytes)
        else:
            memory = self._pool.take(message.payload_bytes, lambda _: self._uncount(size_bytes))
        self._feed.read(message, gatherer, memory[: message.payload_bytes])
        return memory, False

    def _sealed(
        self, seal: StreamSeal, message: MessagePlan, head: bytes, clear: npt.NDArray[np.uint8]
    ) -> npt.NDArray[np.uint8]:
        """Return a sealed copy, with room for the tail.

        It counts from now on; the clear copy counts until the caller drops it.
        """
        payload_bytes = self._wire_bytes(message)
        size_bytes = held_bytes(payload_bytes, message.count)
        with self._lock:
            self._in_flight_bytes += size_bytes
            self._memory.add(size_bytes)
        memory = self._take(payload_bytes + tail_room(message.count), size_bytes)
        seal.seal(self._number, head, clear.data, memory.data[:payload_bytes])
        return memory

    def _uncount(self, size_bytes: int) -> None:
        """Note that less is held of what is being read."""
        with self._lock:
            self._in_flight_bytes -= size_bytes
        self._memory.give_back(size_bytes)

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
                self.ended = True
                return False  # the rank gets nothing from here, now or later
            if self._is_ahead(self._feed.searched_epoch):
                return self._park(self._in_flight_bytes - 1, on_room)
            return True

    def _is_ahead(self, epoch: int) -> bool:
        """Return whether the next message to send is of an epoch long before this one."""
        return bool(self._ready) and epoch > self._ready[0].message.epoch + _EPOCHS_AHEAD

    def _park(self, resume_bytes: int, on_room: "Callable[[Stream], None] | None") -> bool:
        """Pause until at most `resume_bytes` are in flight, then call `on_room`; return False."""
        self._resume_bytes = resume_bytes
        self._parked, self._on_room = True, on_room
        return False

    def released(self, size_bytes: int) -> None:
        """Note that memory of a message is free again; called by any thread."""
        with self._lock:
            self._in_flight_bytes -= size_bytes
            roomy = self._in_flight_bytes <= max(self._resume_bytes, 0)
            wake = self._on_room if self._parked and roomy and not self.closed else None
            if wake is not None:
                self._parked = False
        self._memory.give_back(size_bytes)
        if wake is not None:
            wake(self)

    def _take(self, size_bytes: int, counted_bytes: int) -> npt.NDArray[np.uint8]:
        return self._pool.take(size_bytes, lambda _: self.released(counted_bytes))

    def first(self) -> Outgoing | None:
        """Return the next message to send; it stays until `sent`."""
        ready = self._ready  # `close` may replace the queue at any moment
        return ready[0] if ready else None

    def sent(self) -> None:
        """Note that the first message was given to a lane."""
        with self._lock:
            # The queue is empty if the stream was closed during the hand-over. A dropped message
            # returns its buffer, which takes the lock again, but the caller still refers to this
            # one.
            if self._ready:
                self._ready.popleft()

    def close(self) -> None:
        """Drop what is ready; a read that is under way finishes first. Idempotent."""
        self._feed.stop()
        with self._lock:
            self.closed = True
            self._parked = False
            dropped, self._ready = self._ready, deque()
        # Outside the lock: dropped buffers return themselves, which takes the lock again.
        dropped.clear()


class StreamFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that ended by an error, of which the rank must be told."""

    stream: Stream
    error: EmlioError
