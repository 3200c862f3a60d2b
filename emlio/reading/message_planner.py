"""The messages of a stream: the plan, cut into messages from a position on."""

from collections.abc import Callable, Collection, Iterator
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.notes import MOST_NOTED, pack_notes
from emlio.index.dataset import Dataset
from emlio.planner.plan import EpochPlan, Plan, stretches
from emlio.reading.ranges import RangeRead, Window, WindowRecords, run_starts
from emlio.wire.data import ids_checksum
from emlio.wire.limits import MAX_MESSAGE_RECORDS, MAX_PAYLOAD_BYTES

__all__ = [
    "CHUNK",
    "LONG_RUN_BYTES",
    "NO_OPENING",
    "MessagePlan",
    "MessagePlanner",
    "Opening",
    "Searched",
    "StreamFuture",
    "StreamPosition",
    "notes_of",
]

LONG_RUN_BYTES = 1 << 20
"""The size from which on a run is sent without a copy; below, copying it with its neighbours makes
fewer messages."""

CHUNK = 8192
"""Records planned at once: enough for array code, and few enough that the first message leaves
after 1 ms and that no array reaches the 128 KiB from which glibc maps and unmaps each one. A search
for the next record takes as long before it can be given up."""


_LEAST_IN_WINDOWS = 1024
"""Small windows are planned several at a time."""


class _Stretch(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Records of a stream that are planned at once; shapes (n,). If they are all of a window, it has these places."""

    slots: npt.NDArray[np.int64]
    shard: npt.NDArray[np.int64]
    record: npt.NDArray[np.int64]
    window: tuple[int, int] | None = None


class StreamPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the endless sequence of epochs that a stream covers.

    Attributes:
        epoch: the first epoch.
        origin: samples of that epoch, over all ranks, that are not wanted any more.
        slot: the rank's first wanted sample in the rest of that epoch.
        end: the first epoch that is not wanted; None if all are.
    """

    epoch: int
    origin: int
    slot: int
    end: int | None = None


class StreamFuture(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The stream that is read from now on.

    Attributes:
        plan: the plan that all sides agreed on.
        rank: the rank whose records are read.
        position: the position to begin from.
        owned: (catalog shards,) which shards the stream carries.
        local: (catalog shards,) the shard's number in the dataset, or -1 if it is not held here.
    """

    plan: Plan
    rank: int
    position: StreamPosition
    owned: npt.NDArray[np.bool_]
    local: npt.NDArray[np.int64]


class MessagePlan(RangeRead, frozen=True, kw_only=True, eq=False):
    """The content of the next message.

    Attributes:
        epoch: the epoch of all its records.
        slot: the rank's running sample number of the first record.
        ids_crc: the checksum of the records' global ids.
        one_run: whether the records are contiguous in one file.
        notes: what ranks are told of the records beside their bytes, as it is sent.
    """

    epoch: int
    slot: int
    ids_crc: int
    one_run: bool
    notes: bytes = b""

    @property
    def payload_bytes(self) -> int:
        """The bytes of the records and of what is told of them."""
        return self.size_bytes + len(self.notes)


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the plan that holds no record of the stream; the search continues after it.

    Attributes:
        epoch: the epoch that was searched.
    """

    epoch: int


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """Smaller messages at a stream's start.

    Young connections carry little per round trip. When several share the first batch evenly, it
    arrives earlier than when each must carry a whole message first.

    Attributes:
        message_bytes: the size to which these messages are filled.
        total_bytes: the bytes of all of them.
    """

    message_bytes: int
    total_bytes: int


NO_OPENING = Opening(message_bytes=0, total_bytes=0)


class MessagePlanner(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Cuts the plan into the messages of one stream.

    Attributes:
        plan: the plan that all sides agreed on.
        rank: the rank whose records are sent.
        owned: (catalog shards,) which shards the stream carries.
        local: (catalog shards,) the shard's number in `dataset`, or -1 if it is not held here.
        dataset: has the offset of each record.
        message_bytes: the size to which messages are filled.
        opening: the size of the first messages instead.
        most_bytes: returns the current limit of the size, if that is smaller.
        chunk: the most places planned at once.
        by_windows: whether the records of a window of a block order are planned at once, and no message has records of
            two windows.
    """

    plan: Plan
    rank: int
    owned: npt.NDArray[np.bool_]
    local: npt.NDArray[np.int64]
    dataset: Dataset
    message_bytes: int
    opening: Opening = NO_OPENING
    most_bytes: Callable[[], int] | None = None
    chunk: int = CHUNK
    by_windows: bool = False

    def messages(self, position: StreamPosition) -> Iterator[MessagePlan | Searched]:
        """Yield all messages from a position on.

        They are endless if the position has no end, but there may be none at all. The next record
        may be arbitrarily far away. `Searched` follows each stretch without a record, so that the
        caller can give up the search or serve others first.

        Raises:
            DatasetError: a record is too long for a message.
        """
        epoch, origin, slot = position.epoch, position.origin, position.slot
        sent_bytes = 0
        records = int(np.diff(self.plan.catalog.bases)[self.owned].sum())
        # If the order never changes, an epoch without a record for this rank means that none will
        # ever come.
        fixed = self.plan.spec.sampling.is_fixed(self.plan.spec.shuffle)
        while records and (position.end is None or epoch < position.end):
            found = bool(origin or slot)
            nothing, slots_left = Searched(epoch=epoch), False
            of_epoch = self.plan.epoch(epoch, origin)
            for stretch in self._stretches(of_epoch, slot):
                slots_left = True
                if not stretch.slots.size:
                    yield nothing
                    continue
                found = True
                for message in self._cut(of_epoch, stretch, sent_bytes):
                    sent_bytes += message.size_bytes
                    yield message
            if fixed and not found:
                return
            if not slots_left:
                yield nothing  # an epoch without a slot for this rank takes time, too
            epoch, origin, slot = epoch + 1, 0, 0

    def _stretches(self, epoch: EpochPlan, slot: int) -> Iterator[_Stretch]:
        """Yield the stream's records of an epoch from a slot on; some stretches may be empty."""
        slots = epoch.slots(self.rank)
        while self.by_windows and slot < slots:
            found = epoch.windows(self.rank, slot, _LEAST_IN_WINDOWS)
            if found is None or found[2] - slot > self.chunk:
                break  # that is too far to be planned
            first, last, end = found
            of_each, shard, record = next(stretches(epoch, self.rank, slot, self.owned, end - slot))
            yield _Stretch(slots=of_each, shard=shard, record=record, window=(first, last))
            slot = end
        for of_each, shard, record in stretches(epoch, self.rank, slot, self.owned, min(self.chunk, CHUNK)):
            yield _Stretch(slots=of_each, shard=shard, record=record)

    def _of_ranks(self, epoch: EpochPlan, first: int, last: int, ranks: Collection[int]) -> WindowRecords:
        """Return what ranks take of the places of a window, from the same shards as this stream."""
        places = np.arange(max(first, epoch.origin), last)
        ids = epoch.ids_at(places[np.isin(epoch.receivers(places), list(ranks))])
        shard = self.plan.catalog.shards_of(ids)
        ids, shard = ids[self.owned[shard]], shard[self.owned[shard]]
        file, starts, ends = self.dataset.locate(self.local[shard], ids - self.plan.catalog.bases[shard])
        return WindowRecords(ids=ids, file=file, starts=starts, sizes=ends - starts)

    def _window(self, epoch: EpochPlan, places: tuple[int, int], own: WindowRecords) -> Window:
        return Window(number=(epoch.epoch, places[0]), own=own, of=partial(self._of_ranks, epoch, *places))

    def _cut(self, epoch: EpochPlan, stretch: _Stretch, sent_bytes: int) -> Iterator[MessagePlan]:
        slots, shard, record = stretch.slots, stretch.shard, stretch.record
        ids = self.plan.catalog.bases[shard] + record
        numbers = self.local[shard]
        files, starts, ends = self.dataset.locate(numbers, record)
        sizes = ends - starts
        own = WindowRecords(ids=ids, file=files, starts=starts, sizes=sizes)
        window = self._window(epoch, stretch.window, own) if stretch.window else None
        filled = np.cumsum(sizes)
        runs = np.append(run_starts(files, starts, sizes), len(sizes))
        most_records = MAX_MESSAGE_RECORDS if self.dataset.notes is None else MOST_NOTED
        begin, before = 0, 0
        while begin < len(sizes):
            # A record longer than a message is still sent whole, alone.
            most = self.opening.message_bytes if sent_bytes + before < self.opening.total_bytes else self.message_bytes
            if self.most_bytes is not None:
                most = min(most, self.most_bytes())
            end = int(np.searchsorted(filled, before + most, side="right"))
            end = min(max(end, begin + 1), begin + most_records)
            run_end = int(runs[np.searchsorted(runs, begin, side="right")])
            if end > run_end and int(filled[run_end - 1]) - before >= LONG_RUN_BYTES:
                end = run_end  # a long run is sent alone, so that it need not be copied
            upto = int(filled[end - 1])
            notes = notes_of(self.dataset, numbers[begin:end], record[begin:end])
            if upto - before + len(notes) > MAX_PAYLOAD_BYTES:
                self._refuse(int(numbers[begin]), int(record[begin]), upto - before, len(notes))
            yield MessagePlan(
                epoch=epoch.epoch,
                slot=int(slots[begin]),
                ids_crc=ids_checksum(ids[begin:end]),
                shard=numbers[begin:end],
                record=record[begin:end],
                file=files[begin:end],
                starts=starts[begin:end],
                sizes=sizes[begin:end],
                size_bytes=upto - before,
                window=window,
                window_place=begin,
                one_run=end <= run_end,
                notes=notes,
            )
            begin, before = end, upto

    def _refuse(self, number: int, record: int, size: int, noted: int) -> None:
        path, _ = self.dataset.where(number, record)
        raise DatasetError(
            f"a record must have at most {MAX_PAYLOAD_BYTES - noted:,} bytes with its frame to be sent, record {record} "
            f"of {path} has {size:,}"
        )


def notes_of(dataset: Dataset, numbers: npt.NDArray[np.int64], record: npt.NDArray[np.int64]) -> bytes:
    """Return what ranks are told of these records, packed; nothing if there is nothing to tell.

    Args:
        dataset: the dataset.
        numbers: (n,) which of its shards each record lies in.
        record: (n,) its number in that shard.
    """
    tell = dataset.notes
    if tell is None:
        return b""
    notes = [b""] * len(record)
    for number in np.unique(numbers).tolist():
        places = np.flatnonzero(numbers == number)
        for place, note in zip(places.tolist(), tell(number, record[places]), strict=True):
            notes[place] = note
    return pack_notes(notes)
