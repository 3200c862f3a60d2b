"""Which messages a stream consists of: the plan walked and cut, from a position on.

Covers: which records make each message, and where they lie. Does not cover: their bytes (emlio.reading.feed).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.planner.order import ShuffleMode
from emlio.planner.plan import Plan, stretches
from emlio.reading.gather import run_starts
from emlio.shards.dataset import Dataset
from emlio.wire.data import ids_checksum
from emlio.wire.limits import MAX_MESSAGE_RECORDS, MAX_PAYLOAD_BYTES

__all__ = ["LONG_RUN_BYTES", "NO_OPENING", "Course", "MessagePlan", "Opening", "Searched", "StreamPosition"]

LONG_RUN_BYTES = 1 << 20
"""From this size on a run is sent from where it lies; below, copying it with its neighbours makes fewer messages."""

_CHUNK = 16_384
"""Records planned at once: large enough for array code, small enough that the first message leaves after 2 ms. So long, too, a
search for the next record takes before it can be given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """Where in the endless sequence of epochs a stream begins, and where it ends.

    Attributes:
        epoch: the first.
        origin: samples of it, over all ranks, that are not wanted any more.
        slot: the rank's sample of what is left of it.
        end: the first epoch that is not wanted; None where all are.
    """

    epoch: int
    origin: int
    slot: int
    end: int | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """A stretch of the plan that holds no record of the stream; the search goes on behind it.

    Attributes:
        epoch: the epoch that was searched.
    """

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Smaller messages at a stream's start.

    Young connections carry little in a round trip. When several share the first batch evenly it is there sooner than when each
    has to bring a whole message first.

    Attributes:
        message_bytes: what they are filled to.
        total_bytes: of all of them.
    """

    message_bytes: int
    total_bytes: int


NO_OPENING = Opening(message_bytes=0, total_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """What the messages of one stream are cut from.

    Attributes:
        plan: what all sides agreed on.
        rank: whose part of it.
        owned: (catalog shards,) which shards the stream carries.
        local: (catalog shards,) the shard's number in `dataset`, or -1 where it is not held here.
        dataset: where each record lies.
        message_bytes: what a message is filled to.
        opening: how the first messages are filled instead.
    """

    plan: Plan
    rank: int
    owned: npt.NDArray[np.bool_]
    local: npt.NDArray[np.int64]
    dataset: Dataset
    message_bytes: int
    opening: Opening = NO_OPENING

    def messages(self, position: StreamPosition) -> Iterator[MessagePlan | Searched]:
        """All from a position on; without end where it names none, or none at all.

        The next record may be arbitrarily far away. `Searched` comes after each stretch without one, so that the caller can
        give up the search or let others go first.

        Raises:
            DatasetError: a record is too long for a message.
        """
        epoch, origin, slot = position.epoch, position.origin, position.slot
        sent_bytes = 0
        records = int(np.diff(self.plan.catalog.bases)[self.owned].sum())
        # An order that never changes and an epoch without a record for this rank mean that none will ever come.
        fixed = self.plan.spec.shuffle.mode is ShuffleMode.NONE
        while records and (position.end is None or epoch < position.end):
            found = bool(origin or slot)
            nothing, slots_left = Searched(epoch=epoch), False
            for slots, shard, record in stretches(self.plan.epoch(epoch, origin), self.rank, slot, self.owned, _CHUNK):
                slots_left = True
                if not slots.size:
                    yield nothing
                    continue
                found = True
                for message in self._cut(epoch, slots, shard, record, sent_bytes):
                    sent_bytes += message.size_bytes
                    yield message
            if fixed and not found:
                return
            if not slots_left:
                yield nothing  # also an epoch without a slot for this rank takes time
            epoch, origin, slot = epoch + 1, 0, 0

    def _cut(
        self,
        epoch: int,
        slots: npt.NDArray[np.int64],
        shard: npt.NDArray[np.int64],
        record: npt.NDArray[np.int64],
        sent_bytes: int,
    ) -> Iterator[MessagePlan]:
        ids = self.plan.catalog.bases[shard] + record
        numbers = self.local[shard]
        starts, ends = self._ranges(numbers, record)
        sizes = ends - starts
        filled = np.cumsum(sizes)
        runs = np.append(run_starts(numbers, starts, sizes), len(sizes))
        begin, before, run = 0, 0, 0
        while begin < len(sizes):
            # A record longer than a message still goes out whole, alone.
            most = self.opening.message_bytes if sent_bytes + before < self.opening.total_bytes else self.message_bytes
            end = int(np.searchsorted(filled, before + most, side="right"))
            end = min(max(end, begin + 1), begin + MAX_MESSAGE_RECORDS)
            while runs[run] <= begin:
                run += 1
            run_end = int(runs[run])
            if end > run_end and int(filled[run_end - 1]) - before >= LONG_RUN_BYTES:
                end = run_end  # a long run goes alone: then it need not be copied
            upto = int(filled[end - 1])
            if upto - before > MAX_PAYLOAD_BYTES:
                self._refuse(int(numbers[begin]), int(record[begin]), upto - before)
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

    def _refuse(self, number: int, record: int, size: int) -> None:
        raise DatasetError(
            f"a record must have at most {MAX_PAYLOAD_BYTES:,} bytes with its frame to be sent, record {record} of "
            f"{self.dataset.shards[number].path} has {size:,}"
        )

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
            offsets = self.dataset.shards[int(grouped[begin])].offsets
            of_group = record[group]
            starts[group] = offsets[of_group]
            ends[group] = offsets[of_group + 1]
        return starts, ends
