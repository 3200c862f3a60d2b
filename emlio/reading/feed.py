"""One stream's messages, in order: the plan walked, cut into messages, read.

Covers: which records make the next message and getting their bytes, with the ranges of following messages asked for ahead.
Does not cover: threads and bounds (emlio.daemon.stream), sockets. Used by one thread at a time.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from emlio.clock import Clock
from emlio.errors import CorruptRecordError
from emlio.planner.order import ShuffleMode
from emlio.planner.plan import Plan, walk
from emlio.reading.files import OpenShards
from emlio.reading.gather import Gatherer, ShortReadError, run_starts
from emlio.reading.slices import Borrower
from emlio.wire.data import ids_checksum
from emlio.wire.limits import MAX_MESSAGE_RECORDS

__all__ = ["Feed", "MessagePlan", "StreamPosition"]

_AHEAD = 3
"""Messages asked for ahead of the one being read: two or three hide a disk's latency, more only fill the cache."""

_LONG_RUN_BYTES = 1 << 20
"""From this size on a run is sent from where it lies; below, copying it with its neighbours makes fewer messages."""

_CHUNK = 16_384
"""Records planned at once: large enough for array code, small enough that the first message leaves after 2 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """Where in the endless sequence of epochs a stream begins."""

    epoch: int
    origin: int
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MessagePlan:
    """What the next message holds; shapes (n,) for n records.

    Attributes:
        epoch: of all its records.
        slot: the rank's running sample number of the first.
        ids_crc: checksum of the records' global ids.
        shard: which of the dataset's shards each record lies in.
        starts: byte offset of each record's frame.
        sizes: bytes of each record's frame.
        size_bytes: of all.
        one_run: whether they lie one behind the other in one shard.
    """

    epoch: int
    slot: int
    ids_crc: int
    shard: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    size_bytes: int
    one_run: bool

    @property
    def count(self) -> int:
        """How many records."""
        return len(self.sizes)


class Feed:
    """The messages of one stream from a position on, without end."""

    def __init__(
        self,
        *,
        plan: Plan,
        rank: int,
        position: StreamPosition,
        owned: npt.NDArray[np.bool_],
        local: npt.NDArray[np.int64],
        shards: OpenShards,
        message_bytes: int,
        clock: Clock,
    ) -> None:
        """A feed.

        Args:
            plan: what all sides agreed on.
            rank: whose part of it.
            position: where to begin.
            owned: (catalog shards,) which shards this stream carries.
            local: (catalog shards,) the shard's number in `shards`, or -1 where it is not held here.
            shards: the files.
            message_bytes: what a message is filled to.
            clock: for the age of checks.
        """
        self._plan = plan
        self._rank = rank
        self._position = position
        self._owned = owned
        self._local = local
        self._shards = shards
        self._message_bytes = message_bytes
        self._clock = clock
        self._records = int(np.diff(plan.catalog.bases)[owned].sum())
        self._coming = self._messages()
        self._planned: deque[MessagePlan] = deque()
        self._advised = 0

    def next(self, gatherer: Gatherer) -> MessagePlan | None:
        """Plan the next message; while the disk is what is waited for, ask for those behind it. None: there is none."""
        wanted = 1 + (_AHEAD if gatherer.cold else 0)
        while len(self._planned) < wanted:
            message = next(self._coming, None)
            if message is None:
                break  # what is planned still goes out
            self._planned.append(message)
        if not self._planned:
            return None
        if gatherer.cold:
            for message in list(self._planned)[self._advised :]:
                gatherer.advise(self._shards, message.shard, message.starts, message.sizes)
            self._advised = len(self._planned)
        self._advised = max(self._advised - 1, 0)
        return self._planned.popleft()

    def borrow(self, message: MessagePlan, gatherer: Gatherer, borrower: Borrower) -> npt.NDArray[np.uint8] | None:
        """The message's bytes where they lie, if they are one long run of a shard that nobody can shorten meanwhile.

        The borrower hears when nobody refers to them any more. None: they must be `read`.
        """
        if not message.one_run or message.size_bytes < _LONG_RUN_BYTES:
            return None
        self._shards.check(message.shard[:1], self._clock.monotonic_ns())
        start = int(message.starts[0])
        view = self._shards.lend(int(message.shard[0]), start, start + message.size_bytes, borrower)
        if view is not None:
            gatherer.look_at_disk()
        return view

    def read(self, message: MessagePlan, gatherer: Gatherer, out: npt.NDArray[np.uint8]) -> None:
        """Fill `out`, of the message's size, with its records' frames."""
        self._shards.check(message.shard, self._clock.monotonic_ns())
        try:
            gatherer.read(self._shards, message.shard, message.starts, message.sizes, out)
        except ShortReadError as short:
            raise self._cut_short(message, short.position) from short

    def _cut_short(self, message: MessagePlan, at: int) -> CorruptRecordError:
        """What to say when the file ends before, or cannot be read at, a record; a file that changed says so itself."""
        number, offset = int(message.shard[at]), int(message.starts[at])
        shard = self._shards.dataset.shards[number]
        shard.check_unchanged(self._shards.descriptor(number))
        record = int(np.searchsorted(shard.offsets, offset, side="right")) - 1
        return CorruptRecordError(
            f"record {record} of {shard.path} must have {int(message.sizes[at])} bytes at offset {offset}, "
            "they cannot be read",
            shard=shard.name,
            record=record,
            offset=offset,
        )

    def _messages(self) -> Iterator[MessagePlan]:
        position = self._position
        epoch, origin, slot = position.epoch, position.origin, position.slot
        # An order that never changes and an epoch without a record for this rank mean that none will ever come.
        fixed = self._plan.spec.shuffle.mode is ShuffleMode.NONE
        while True:
            found = bool(origin or slot)
            for slots, shard, record in walk(self._plan.epoch(epoch, origin), self._rank, slot, self._owned, _CHUNK):
                found = True
                yield from self._cut(epoch, slots, shard, record)
            if (fixed and not found) or not self._records:
                return
            epoch, origin, slot = epoch + 1, 0, 0

    def _cut(
        self,
        epoch: int,
        slots: npt.NDArray[np.int64],
        shard: npt.NDArray[np.int64],
        record: npt.NDArray[np.int64],
    ) -> Iterator[MessagePlan]:
        ids = self._plan.catalog.bases[shard] + record
        numbers = self._local[shard]
        starts, ends = self._ranges(numbers, record)
        sizes = ends - starts
        filled = np.cumsum(sizes)
        runs = np.append(run_starts(numbers, starts, sizes), len(sizes))
        begin, before, run = 0, 0, 0
        while begin < len(sizes):
            # A record longer than a message still goes out whole, alone.
            end = int(np.searchsorted(filled, before + self._message_bytes, side="right"))
            end = min(max(end, begin + 1), begin + MAX_MESSAGE_RECORDS)
            while runs[run] <= begin:
                run += 1
            run_end = int(runs[run])
            if end > run_end and int(filled[run_end - 1]) - before >= _LONG_RUN_BYTES:
                end = run_end  # a long run goes alone: then it need not be copied
            upto = int(filled[end - 1])
            yield MessagePlan(
                epoch=epoch,
                slot=int(slots[begin]),
                ids_crc=ids_checksum(ids[begin:end]),
                shard=numbers[begin:end],
                starts=starts[begin:end],
                sizes=sizes[begin:end],
                size_bytes=upto - before,
                one_run=end <= run_end,
            )
            begin, before = end, upto

    def _ranges(
        self, numbers: npt.NDArray[np.int64], record: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where each record's frame begins and ends in its file."""
        starts, ends = np.empty(len(record), np.int64), np.empty(len(record), np.int64)
        order = np.argsort(numbers, kind="stable")
        grouped = numbers[order]
        edges = [0, *(np.flatnonzero(grouped[1:] != grouped[:-1]) + 1).tolist(), len(grouped)]
        for begin, end in pairwise(edges):
            if begin == end:
                continue
            group = order[begin:end]
            offsets = self._shards.dataset.shards[int(grouped[begin])].offsets
            of_group = record[group]
            starts[group] = offsets[of_group]
            ends[group] = offsets[of_group + 1]
        return starts, ends
