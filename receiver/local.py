"""Shards on this host's own disks: read by a thread, by the plan that a daemon would follow, and handed on like its messages.

Covers: what lies here, the thread, its bound in bytes, errors, the end. Does not cover: which shards (emlio.receiver.agreement),
what becomes of a message (emlio.receiver.intake): both ways meet there, so order and checks are the same.
"""

import logging
from collections import deque
from pathlib import Path
from threading import Condition, Thread

import numpy as np

from emlio.clock import Clock
from emlio.errors import DatasetError, EmlioError
from emlio.planner.plan import Plan
from emlio.reading.buffers import BufferPool
from emlio.reading.course import MessagePlan, StreamPosition
from emlio.reading.feed import Feed
from emlio.reading.files import OpenShards
from emlio.reading.gather import Gatherer
from emlio.receiver.agreement import Holding
from emlio.receiver.intake import Message
from emlio.receiver.record_sizes import RecordSizes
from emlio.shards.dataset import Dataset, open_dataset
from emlio.tfrecord import check_frames
from emlio.waker import Waker
from emlio.wire.control import ShardRow
from emlio.wire.data import DATA_VERSION, DataHeader

__all__ = ["LocalShards"]

_LOG = logging.getLogger("emlio.receiver.local")
_MESSAGE_BYTES = 4 << 20
"""Read and checked at once. Each message costs about the same on its way, so that small ones are dear: with 1 MiB a picture of
100 kB costs a third more than with 4."""

_PARTS_OF_A_WINDOW = 8
"""A small window must not be overrun by a single message."""

_AHEAD_BYTES = 16 << 20
"""Memory for what is read and not yet taken; what is taken counts in the loader's window."""

_SLAB_BYTES = 1 << 20
"""What memory comes in. A message counts with all its slabs: by its bytes alone, thousands of epochs of a small dataset would be
read ahead."""

_NAMED = 5


class LocalShards:
    """The shards of one directory of this host. `first`, `taken` and `open` belong to the receive thread.

    Attributes:
        holding: what lies here.
        owned: (shards,) those read here; set once the plan is known.
    """

    def __init__(
        self,
        directory: Path,
        waker: Waker,
        clock: Clock,
        *,
        verify: bool = True,
        window_bytes: int = _PARTS_OF_A_WINDOW * _MESSAGE_BYTES,
        progress: bool = False,
    ) -> None:
        """Open the directory; scans what has no index yet.

        Args:
            directory: where the shards lie.
            waker: wakes the receive thread when there is something to take.
            clock: for the age of checks.
            verify: whether records are checked against their CRC32C, right after they are read.
            window_bytes: of the loader; what is read at once is a part of it.
            progress: show a line while scanning.
        """
        self.owned = np.zeros(0, np.bool_)
        self._verify = verify
        self._message_bytes = min(_MESSAGE_BYTES, window_bytes // _PARTS_OF_A_WINDOW)
        self._waker = waker
        self._clock = clock
        self._dataset: Dataset = open_dataset(directory.name, directory, progress=progress)
        self._shards = OpenShards(self._dataset)
        self.holding = Holding(
            peer=str(directory),
            rows=tuple(
                ShardRow(name=entry.name, records=entry.records, size_bytes=entry.size_bytes, digest=entry.digest)
                for entry in self._dataset.entries
            ),
            missing=self._dataset.missing[:_NAMED],
            missing_count=len(self._dataset.missing),
            here=True,
        )
        self._numbers = {entry.name: number for number, entry in enumerate(self._dataset.entries)}
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
            shards=self._shards,
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
        """The next message, which stays until `taken`; raises what prevented reading once all before it was taken."""
        with self._changed:
            if self._ready:
                return self._ready[0]
            if self._error is not None:
                raise self._error
            return None

    def taken(self) -> None:
        """The first message was taken."""
        with self._changed:
            self._ready_bytes -= _held_bytes(self._ready.popleft())
            self._changed.notify_all()

    def sizes(self, shard: str, first: int, count: int) -> RecordSizes | None:
        """Where in its file record `first` begins, and the sizes of it and those after it; None if it does not lie here."""
        number = self._numbers.get(shard)
        if number is None:
            return None
        offsets = self._dataset.shards[number].offsets
        return RecordSizes(offset=int(offsets[first]), sizes=np.diff(offsets[first : first + count + 1]))

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
            except Exception as failure:  # noqa: BLE001  # who waits for messages must hear of it, whatever it is
                _LOG.exception("reading %s failed", self.holding.peer)
                error = EmlioError(f"internal error while reading {self.holding.peer}: {failure!r}")
                error.__cause__ = failure
            if message is None and error is None and not feed.ended:
                continue  # the next record is far away; meanwhile another position may be wanted, or the end
            with self._changed:
                if generation == self._generation:
                    if message is None:
                        # Failed, or that was the last epoch, or an order that never changes and holds nothing for this rank.
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
        payload = self._pool.take(planned.size_bytes, _nobody_counts)
        feed.read(planned, gatherer, payload)
        run = check_frames(payload.data, planned.sizes, verify=self._verify)
        return Message(header=_header(planned), payload=payload.data, sizes=planned.sizes, run=run)

    def close(self) -> None:
        """End the thread, free the files. Closing again does nothing."""
        with self._changed:
            self._closed = True
            if self._feed is not None:
                self._feed.stop()
            self._ready.clear()
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self._shards.close()
        self._dataset.close()


def _held_bytes(message: Message) -> int:
    return max(-(-len(message.payload) // _SLAB_BYTES), 1) * _SLAB_BYTES


def _nobody_counts(size_bytes: int) -> None:
    """What is out is counted by the loader's window."""


def _header(planned: MessagePlan) -> DataHeader:
    return DataHeader(
        version=DATA_VERSION,
        session=0,
        stream=0,
        epoch=planned.epoch,
        lane=0,
        lane_sequence=0,
        slot=planned.slot,
        count=planned.count,
        ids_crc=planned.ids_crc,
        sizes=b"",
    )
