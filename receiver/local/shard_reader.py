"""Shards that this process reads itself, from the host's own disks or from a bucket.

A thread reads them by the plan that a daemon would follow, and passes them on like a daemon's
messages. Both are processed in the same place (emlio.receiver.machine.intake), so order and checks
are the same.

Covers: the shards held here, the thread, its bound in bytes, errors, the end. Does not cover: which
shards are read (emlio.receiver.assignment.agreement), processing a message
(emlio.receiver.machine.intake).
"""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Condition, Thread

import msgspec
import numpy as np

from emlio.clock import Clock
from emlio.errors import DatasetError, EmlioError
from emlio.index.dataset import Dataset
from emlio.index.opening import open_dataset
from emlio.planner.plan import Plan
from emlio.reading.buffers import AheadBudget, BufferPool
from emlio.reading.columns import find_matches
from emlio.reading.direct.io_choice import IoMode, choose_io
from emlio.reading.direct.io_settings import IoSettings
from emlio.reading.feed import Feed
from emlio.reading.gather import Gatherer
from emlio.reading.message_planner import MessagePlan, StreamPosition
from emlio.reading.open_engine import open_engine
from emlio.reading.single_records import FoundRecords, find_records
from emlio.receiver.assignment.agreement import Holding
from emlio.receiver.machine.message import Message
from emlio.receiver.records.sizes import RecordSizes
from emlio.store.bucket.address import ObjectAddress
from emlio.waker import Waker
from emlio.wire.data import DATA_VERSION, DataHeader
from emlio.wire.limits import MAX_PAYLOAD_BYTES

__all__ = ["LocalShards"]

_LOG = logging.getLogger("emlio.receiver.local")
_MESSAGE_BYTES = 4 << 20
"""Bytes read and checked at once. Each message has about the same cost, so small ones are
expensive: with 1 MiB an image of 100 kB costs a third more than with 4 MiB."""

_PARTS_OF_A_WINDOW = 8
"""A single message must not exceed a small window."""

_AHEAD_BYTES = 16 << 20
"""Memory for data read and not yet taken. Data that was taken counts in the loader's window."""

_REQUESTED_BYTES = 64 << 20
"""Memory for requests to a bucket, or for reads past the page cache, in addition; at 100 ms enough for 640 MB/s."""

_SLAB_BYTES = 1 << 20
"""The unit of memory. A message counts with all its slabs: if it counted by its bytes alone,
thousands of epochs of a small dataset would be read ahead."""

_NAMED = 5


class LocalShards:
    """The shards of one directory of this host, or of one bucket.

    `first`, `taken` and `open` belong to the receive thread.

    Attributes:
        holding: the shards in the directory.
        owned: (shards,) those to read; set once the plan is known.
    """

    def __init__(
        self,
        directory: Path | ObjectAddress,
        waker: Waker,
        clock: Clock,
        *,
        verify: bool = True,
        window_bytes: int = _PARTS_OF_A_WINDOW * _MESSAGE_BYTES,
        progress: bool = False,
        options: Mapping[str, str] | None = None,
        questions: Sequence[str] = (),
        part: int | None = None,
    ) -> None:
        """Open the directory; scan shards that have no index yet.

        Args:
            directory: the directory with the shards, or the address of the objects.
            waker: wakes the receive thread when there is data to take.
            clock: for the age of checks.
            verify: whether records are checked against their CRC32C, right after they are read.
            window_bytes: the loader's window; the size of a single read is a part of it.
            progress: show a line while scanning.
            options: say how to read it; see `DatasetPath`.
            questions: predicates over the records, evaluated now.
            part: the number of the dataset, if the loader mixes several.
        """
        self.owned = np.zeros(0, np.bool_)
        self._verify = verify
        self._message_bytes = min(_MESSAGE_BYTES, window_bytes // _PARTS_OF_A_WINDOW)
        self._waker = waker
        self._clock = clock
        self._dataset: Dataset = open_dataset(directory.name, directory, progress=progress, options=options)
        try:
            found = [find_matches(self._dataset, question) for question in questions]
            io = choose_io(IoMode.AUTO, self._dataset)
            _LOG.debug("%s: files are read by %s", directory, io)
            self._engine = open_engine(
                self._dataset, None, AheadBudget(_REQUESTED_BYTES), direct=IoSettings() if io.direct else None
            )
        except BaseException:
            self._dataset.close()
            raise
        held = Holding(
            peer=str(directory),
            rows=tuple(entry.row for entry in self._dataset.entries),
            missing=self._dataset.missing[:_NAMED],
            missing_count=len(self._dataset.missing),
            here=True,
            contents=self._dataset.contents,
            matches=tuple(one.bits.tobytes() for one in found),
            digests=tuple(one.digests for one in found),
        )
        self.holding = held if part is None else held.of_part(part)
        self._numbers = {row.name: number for number, row in enumerate(self.holding.rows)}
        self._pool = BufferPool(_SLAB_BYTES, keep_bytes=2 * _AHEAD_BYTES)
        self._changed = Condition()
        self._feed: Feed | None = None
        self._ready: deque[Message] = deque()
        self._ready_bytes = 0
        self._generation = 0
        self._error: EmlioError | None = None
        self._closed = False
        self._thread = Thread(target=self._run, name="emlio-local", daemon=True)

    def open(self, plan: Plan, rank: int, position: StreamPosition) -> None:
        """Drop what was read, and read from this position on."""
        numbers = np.array([self._numbers.get(entry.name, -1) for entry in plan.catalog.shards], np.int64)
        feed = Feed(
            plan=plan,
            rank=rank,
            position=position,
            owned=self.owned,
            local=numbers,
            engine=self._engine,
            message_bytes=self._message_bytes,
            clock=self._clock,
        )
        with self._changed:
            if self._feed is not None:
                self._feed.stop()
            self._generation += 1
            self._ready.clear()
            self._ready_bytes = 0
            self._error = None
            self._feed = feed if self.owned.any() else None
            self._changed.notify_all()
        if self._thread.ident is None:
            self._thread.start()

    def first(self) -> Message | None:
        """Return the next message, which stays first until `taken`; None if none is ready.

        An error in reading is raised once all messages before it were taken.
        """
        with self._changed:
            if self._ready:
                return self._ready[0]
            if self._error is not None:
                raise self._error
            return None

    def taken(self) -> None:
        """Remove the first message."""
        with self._changed:
            self._ready_bytes -= _held_bytes(self._ready.popleft())
            self._changed.notify_all()

    def wake(self) -> None:
        """Wake the receive thread to check again, if data was read."""
        if self._ready:
            self._waker.wake()

    def sizes(self, shard: str, first: int, count: int) -> RecordSizes | None:
        """Return the offset of record `first` and sizes from it on; None if the shard is not here."""
        number = self._numbers.get(shard)
        if number is None:
            return None
        held = self._dataset.shards[number]
        starts, ends = held.starts[first : first + count], held.ends[first : first + count]
        return RecordSizes(offset=int(starts[0]), sizes=ends - starts)

    def find(self, records: Sequence[tuple[str, int]]) -> FoundRecords:
        """Read the first of these records, at least one, by shard name and number. Any thread may call this.

        Raises:
            DatasetError: the first one cannot be read.
        """
        return find_records(
            self._engine,
            self._clock,
            np.array([self._numbers[shard] for shard, _ in records], np.int64),
            np.array([record for _, record in records], np.int64),
            offset=0,
            most_bytes=MAX_PAYLOAD_BYTES,
        )

    def _run(self) -> None:
        gatherer = Gatherer()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._wanted())
                if self._closed or self._feed is None:
                    return
                feed, generation = self._feed, self._generation
            message, error = None, None
            try:
                message = self._read(feed, gatherer)
            except EmlioError as failure:
                error = failure
            except OSError as failure:
                error = DatasetError(f"the shards in {self.holding.peer} must be readable: {failure}")
                error.__cause__ = failure
            except Exception as failure:  # noqa: BLE001  # the receive thread must learn of any error
                _LOG.exception("reading %s failed", self.holding.peer)
                error = EmlioError(f"internal error while reading {self.holding.peer}: {failure!r}")
                error.__cause__ = failure
            if message is None and error is None and not feed.ended:
                continue  # the next record is far away; meanwhile another position or the end may be requested
            with self._changed:
                if generation == self._generation:
                    if message is None:
                        # It failed, or that was the last epoch, or the order never changes and has
                        # nothing for this rank.
                        self._feed, self._error = None, error
                    else:
                        self._ready.append(message)
                        self._ready_bytes += _held_bytes(message)
                self._waker.wake()

    def _wanted(self) -> bool:
        return self._feed is not None and (not self._ready or self._ready_bytes + self._message_bytes <= _AHEAD_BYTES)

    def _read(self, feed: Feed, gatherer: Gatherer) -> Message | None:
        planned = feed.next(gatherer)
        if planned is None:
            return None
        payload = self._pool.take(planned.payload_bytes, _nobody_counts)
        feed.read(planned, gatherer, payload)
        header = _header(planned, feed.crcs(planned, payload.data))
        message = Message(header=header, payload=payload.data, sizes=planned.sizes)
        return msgspec.structs.replace(message, run=message.checked(verify=self._verify))

    def close(self) -> None:
        """Stop the thread and close the files. A second call does nothing."""
        with self._changed:
            self._closed = True
            if self._feed is not None:
                self._feed.stop()
            self._ready.clear()
            self._changed.notify_all()
        if self._dataset.files.remote:
            self._dataset.files.close()  # a server may stand still while the thread reads a table
        if self._thread.ident is not None:
            self._thread.join()
        self._engine.close()
        self._dataset.close()


def _held_bytes(message: Message) -> int:
    return max(-(-len(message.payload) // _SLAB_BYTES), 1) * _SLAB_BYTES


def _nobody_counts(size_bytes: int) -> None:
    """Ignore the size: buffers in use are counted by the loader's window."""


def _header(planned: MessagePlan, crcs: bytes) -> DataHeader:
    return DataHeader(
        version=DATA_VERSION,
        session=0,
        stream=0,
        number=0,
        epoch=planned.epoch,
        slot=planned.slot,
        count=planned.count,
        ids_crc=planned.ids_crc,
        sizes=b"",
        crcs=crcs,
        notes=len(planned.notes),
    )
