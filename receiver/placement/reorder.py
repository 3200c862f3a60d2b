"""From messages of several streams, in any order, to complete batches.

Each record is put at its place, once. A message may hold records of a hundred thousand batches, and
an open batch takes a kilobyte of objects. So the records of a message wait together, and batches
are filled only a little ahead of those that are taken.

Covers: which stream owes which place, detecting duplicate, lost or foreign records, when a batch is
complete. Pure: no sockets, threads or clocks. Does not cover: how far ahead messages may come
(emlio.receiver.placement.grants), checking records (emlio.tfrecord).
"""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import count, pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import RemoteProtocolError
from emlio.example.columns import Piece
from emlio.planner.plan import Plan
from emlio.receiver.placement.epoch_places import EpochPlaces
from emlio.tfrecord import FrameFault
from emlio.wire.data import DataHeader, ids_checksum

__all__ = ["MOST_FILLED", "PLACE_BYTES", "BadRecord", "LaneOrder", "Reorder", "WholeBatch"]

PLACE_BYTES = 64
"""Memory of a record that is here, besides its bytes: where it lies and belongs, and its part of the
plan. With tiny records this is most of what a window holds."""

MOST_FILLED = 1024
"""Batches that are filled before they are taken. An open batch takes a kilobyte of objects, whatever its size."""

_PART_SLOTS = 1024
"""Places whose flags are kept together."""

_EPOCHS_SEARCHED = 3
"""Epochs searched for a place that a stream owes. A stream with more than a few records owes one in
each epoch."""


class BadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a batch that failed its check.

    Attributes:
        slot: its place in the batch.
        shard: the name of its shard.
        record: its number in the shard.
        reason: what is wrong with it.
        note: what was told of it beside its bytes, if anything.
    """

    slot: int
    shard: str
    record: int
    reason: str
    note: bytes = b""


class WholeBatch(msgspec.Struct, kw_only=True, eq=False):
    """A batch with all its records in place.

    Attributes:
        epoch: its epoch.
        step: its number in the rank's epoch.
        count: the number of records.
        ids: (count,) their global ids.
        draws: (count,) the numbers from which their seeds are drawn, see `EpochPlan.seed_numbers`;
            None: their ids.
        pieces: the buffers that hold the records, each with its places in the batch.
        bad: records that failed their check; no piece contains them.
        size_bytes: total size, as received.
    """

    epoch: int
    step: int
    count: int
    ids: npt.NDArray[np.int64]
    draws: npt.NDArray[np.int64] | None = None
    pieces: list[Piece] = msgspec.field(default_factory=list[Piece])
    bad: list[BadRecord] = msgspec.field(default_factory=list[BadRecord])
    size_bytes: int = 0
    placed: int = 0

    @property
    def whole(self) -> bool:
        """Return whether nothing is missing."""
        return self.placed == self.count

    @property
    def held_bytes(self) -> int:
        """The bytes of the window that it takes."""
        return self.size_bytes + PLACE_BYTES * self.count


class _Run(msgspec.Struct, kw_only=True, eq=False):
    """The records of a message that are not all in their batches yet.

    Attributes:
        epoch: their epoch.
        records: all of them, with their places in the epoch.
        sizes: the size of each, as received.
        bad: why records failed their check, by their number in the message.
        at: the first one that is in no batch.
    """

    epoch: int
    records: Piece
    sizes: npt.NDArray[np.int64]
    bad: dict[int, str]
    at: int = 0


class LaneOrder:
    """The order of one lane: each message has the number after the previous one."""

    def __init__(self, *, lane: int, label: str) -> None:
        self._lane, self._label = lane, label
        self._next = 0

    def check(self, lane: int, sequence: int) -> None:
        """Accept the lane's next message.

        Raises `RemoteProtocolError` on a gap, a repetition or another lane's message.

        Args:
            lane: the lane in the message's stamp.
            sequence: the number in that lane, from the stamp.
        """
        if lane != self._lane:
            raise RemoteProtocolError(
                f"{self._label}: a message must be stamped for this lane, got one for lane {lane}"
            )
        if sequence != self._next:
            what = "messages were lost" if sequence > self._next else "a message was repeated"
            raise RemoteProtocolError(f"{self._label}: message {self._next} must come next, got {sequence}: {what}")
        self._next += 1


class Reorder:
    """The batches of one rank from a position on.

    Attributes:
        next_epoch, next_step: the first batch that has not been taken with `take`.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        rank: int,
        owners: npt.NDArray[np.int64],
        streams: Sequence[str],
        epoch: int,
        origin: int,
        in_order: bool,
    ) -> None:
        """Begin at a position.

        Args:
            plan: the agreed plan.
            rank: the rank whose batches these are.
            owners: (catalog shards,) the stream that carries each shard.
            streams: a name for each stream, for errors.
            epoch: the first epoch.
            origin: samples of it, over all ranks, that are no longer wanted.
            in_order: hand out batches in the plan's order only; otherwise any complete batch.
        """
        self._plan = plan
        self._rank = rank
        self._owners = owners
        self._streams = streams
        self._in_order = in_order
        self._origin = (epoch, origin)
        self._epochs: dict[int, EpochPlaces] = {}
        self._here: dict[tuple[int, int], npt.NDArray[np.bool_]] = {}  # by epoch and part: the places that came
        self._part = (epoch, 0)  # of the first place that was not taken
        self._runs: list[tuple[int, int, _Run]] = []  # a heap, by the first place that is in no batch
        self._open: dict[tuple[int, int], WholeBatch] = {}
        self._taken: set[tuple[int, int]] = set()
        self._whole: dict[tuple[int, int], None] = {}
        self._reopened: dict[int, range] = {}  # stream -> the epochs of which it may repeat records
        self.next_epoch, self.next_step = epoch, 0
        self._skip_empty_epochs()

    def parts(self) -> tuple[object, ...]:
        """Return the objects whose attributes are the state of what is received."""
        return (self, *self._epochs.values())

    def epoch_slots(self, epoch: int) -> int:
        """Return how many samples the rank gets in an epoch."""
        return self._epoch(epoch).slots

    def places(self, epoch: int) -> EpochPlaces:
        """Return the places of an epoch."""
        return self._epoch(epoch)

    def reassign(self, owners: npt.NDArray[np.int64], streams: Sequence[str] | None = None) -> None:
        """Set the streams that carry the shards from now on.

        Streams whose part changes must be reopened where `reopen` says.

        Args:
            owners: (catalog shards,) the stream that carries each shard.
            streams: their names, if there are more than before; none may be removed.
        """
        self._owners, self._streams = owners, self._streams if streams is None else streams
        for epoch in self._epochs.values():
            epoch.reassign(owners, len(self._streams))

    def origin_of(self, epoch: int) -> int:
        """Return how many places of an epoch, over all ranks, are no longer wanted."""
        return self._origin[1] if epoch == self._origin[0] else 0

    def reopen(self, stream: int) -> tuple[int, int]:
        """Return the epoch and place to reopen the stream at: the first that is missing.

        From now on the stream may repeat places that are here already; they are dropped. It may do
        so long after others brought what was missing and the epoch was handed out: a message may be
        delayed on one lane while others go on.
        """
        epoch, slot = self.first_missing(stream)
        last = max([self.next_epoch, *(number for number, _ in self._open), *(number for number, _, _ in self._runs)])
        self._reopened[stream] = range(epoch, last + 1)
        return epoch, slot

    def first_missing(self, stream: int) -> tuple[int, int]:
        """Return the epoch and place of the first missing record that the stream owes."""
        size = self._plan.spec.batch_size
        number, slot = self.next_epoch, self.next_step * size
        for number in range(self.next_epoch, self.next_epoch + _EPOCHS_SEARCHED):
            epoch = self._epoch(number)
            for owed in epoch.all_owed(stream, slot):
                missing = owed[~self._are_here(number, owed)]
                if missing.size:
                    return number, int(missing[0])
            slot = 0
        # It owes nothing for several epochs, so it has very few records and may be opened anywhere
        # later.
        return number + 1, 0

    def _parts(
        self, epoch: int, slots: npt.NDArray[np.int64]
    ) -> Iterator[tuple[slice, npt.NDArray[np.bool_], slice | npt.NDArray[np.int64]]]:
        """Yield rising places in parts: which of them, the part's flags, and where these places are there."""
        begin, last = 0, int(slots[-1])
        while begin < len(slots):
            first = int(slots[begin])
            number, place = divmod(first, _PART_SLOTS)
            flags = self._here.get((epoch, number))
            if flags is None:
                flags = self._here[epoch, number] = np.zeros(_PART_SLOTS, np.bool_)
            after = (number + 1) * _PART_SLOTS
            end = len(slots) if last < after else int(np.searchsorted(slots, after))
            if int(slots[end - 1]) - first == end - 1 - begin:  # as with a single daemon
                yield slice(begin, end), flags, slice(place, place + end - begin)
            else:
                yield slice(begin, end), flags, slots[begin:end] - number * _PART_SLOTS
            begin = end

    def _are_new(self, epoch: int, slots: npt.NDArray[np.int64]) -> bool:
        """Return whether none of these rising places has its record."""
        if (epoch, int(slots[0])) < (self.next_epoch, self.next_step * self._plan.spec.batch_size):
            return False
        return not any(flags[places].any() for _, flags, places in self._parts(epoch, slots))

    def _are_here(self, epoch: int, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of these rising places have their records."""
        taken = epoch < self.next_epoch
        here = np.full(len(slots), taken, np.bool_)
        if taken or not len(slots):
            return here
        if epoch == self.next_epoch:
            before = int(np.searchsorted(slots, self.next_step * self._plan.spec.batch_size))
            here[:before] = True
            slots, rest = slots[before:], here[before:]
        else:
            rest = here
        if len(slots):
            for part, flags, places in self._parts(epoch, slots):
                rest[part] = flags[places]
        return here

    def missing_shards(self) -> npt.NDArray[np.int64]:
        """Return the shards of the records that the next batch still waits for, each once."""
        epoch, size = self._epoch(self.next_epoch), self._plan.spec.batch_size
        first = self.next_step * size
        slots = np.arange(first, min(first + size, epoch.slots))
        slots = slots[~self._are_here(self.next_epoch, slots)]
        if not slots.size:
            return np.zeros(0, np.int64)
        return np.unique(self._plan.catalog.locate(epoch.ids_at(slots))[0])

    def missing_streams(self) -> list[int]:
        """Return the streams that the next batch still waits for, rising."""
        streams: list[int] = np.unique(self._owners[self.missing_shards()]).tolist()
        return streams

    def missing_from(self) -> tuple[str, ...]:
        """Return the names of the streams that the next batch still waits for."""
        return tuple(self._streams[stream] for stream in self.missing_streams())

    def place(
        self,
        stream: int,
        header: DataHeader,
        payload: memoryview,
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        faults: Sequence[FrameFault],
        notes: npt.NDArray[np.int64] | None = None,
    ) -> int:
        """Take a message's records; return what those that were missing take here, see `PLACE_BYTES`."""
        label = self._streams[stream]
        repeated = self._reopened.get(stream, range(0))
        if not self.next_epoch <= header.epoch <= self.next_epoch + 2 and header.epoch not in repeated:
            raise RemoteProtocolError(
                f"{label}: a record must be of epoch {self.next_epoch} or the two after, got epoch {header.epoch}"
            )
        epoch = self._epoch(header.epoch)
        slots = epoch.owed(stream, header.slot, header.count)
        if len(slots) != header.count or int(slots[0]) != header.slot:
            raise RemoteProtocolError(
                f"{label}: {header.count} records from place {header.slot} of epoch {header.epoch} are not the next "
                f"of this stream, the plan has {len(slots)} from place {int(slots[0]) if len(slots) else 'none'}"
            )
        ids = epoch.ids_at(slots)
        if ids_checksum(ids) != header.ids_crc:
            raise RemoteProtocolError(
                f"{label}: the records from place {header.slot} of epoch {header.epoch} must be those of the plan, "
                "the daemon sent others"
            )
        bad = {fault.position: fault.reason for fault in faults}
        if not self._are_new(header.epoch, slots):
            here = self._are_here(header.epoch, slots)
            if stream not in self._reopened:
                step = int(slots[here][0]) // self._plan.spec.batch_size
                raise RemoteProtocolError(f"{label}: a record of batch {step} of epoch {header.epoch} came twice")
            new = np.flatnonzero(~here)
            if not new.size:
                return 0
            slots, starts, ends, sizes = slots[new], starts[new], ends[new], sizes[new]
            notes = notes[new] if notes is not None else None
            bad = {place: bad[was] for place, was in enumerate(new.tolist()) if was in bad}
        records = Piece(buffer=payload, starts=starts, ends=ends, slots=slots, notes=notes)
        for _, flags, places in self._parts(header.epoch, slots):
            flags[places] = True
        run = _Run(epoch=header.epoch, records=records, sizes=sizes, bad=bad)
        heappush(self._runs, (header.epoch, int(slots[0]), run))
        return int(sizes.sum()) + PLACE_BYTES * len(slots)

    @property
    def waits(self) -> bool:
        """Return whether records that are here are in no batch yet."""
        return bool(self._runs)

    def _fill(self, batches: int) -> None:
        """Put records that are here into their batches: into the next so many that were not taken."""
        batches += len(self._taken)  # they lie between others
        while self._runs:
            epoch, slot, run = self._runs[0]
            step = slot // self._plan.spec.batch_size
            ahead = step - self.next_step
            for number in range(self.next_epoch, epoch):
                ahead += self._epoch(number).steps
            if ahead >= batches:
                return
            heappop(self._runs)
            self._spread(run, step, step + batches - ahead)
            if run.at < len(run.sizes):
                heappush(self._runs, (epoch, int(run.records.slots[run.at]), run))

    def _spread(self, run: _Run, first_step: int, before_step: int) -> None:
        """Put the records of a run from its first one on into the batches before `before_step`."""
        records, size, begin, end = run.records, self._plan.spec.batch_size, run.at, len(run.sizes)
        slots = records.slots
        last_step = int(slots[-1]) // size
        if last_step >= before_step:
            end = int(np.searchsorted(slots, before_step * size))
            last_step = int(slots[end - 1]) // size
        run.at = end
        if first_step == last_step:
            edges, sizes = [begin, end], [int(run.sizes[begin:end].sum())]
            places = slots[begin:end] - first_step * size
        else:
            bounds = np.arange(first_step + 1, last_step + 1) * size
            edges = [begin, *np.searchsorted(slots, bounds).tolist(), end]
            sizes = np.add.reduceat(run.sizes[:end], edges[:-1]).tolist()
            places = slots[begin:end] % size
        for step, size_bytes, (first, after) in zip(count(first_step), sizes, pairwise(edges), strict=False):
            if first == after:
                continue  # a batch between two others to which this stream owes nothing
            key = (run.epoch, step)
            batch = self._open.get(key) or self._begin(key)
            batch.placed += after - first
            batch.size_bytes += size_bytes
            piece = records.part(first, after, places[first - begin : after - begin])
            if not run.bad:
                batch.pieces.append(piece)
            else:
                self._place_with_faults(batch, piece, first, run.bad)
            if batch.whole:
                self._whole[key] = None

    def slots_of(self, stream: int, header: DataHeader) -> npt.NDArray[np.int64]:
        """Return the places of a message's records: those that the stream owes, whatever came."""
        return self._epoch(header.epoch).owed(stream, header.slot, header.count)

    def ids_of(self, epoch: int, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the records that belong to these places."""
        return self._epoch(epoch).ids_at(slots)

    def shard_of(self, record: int) -> int:
        """Return the shard that contains a record."""
        return int(self._plan.catalog.locate(np.array([record]))[0][0])

    def _place_with_faults(
        self,
        batch: WholeBatch,
        piece: Piece,
        begin: int,
        bad: dict[int, str],
    ) -> None:
        places = piece.slots
        good = np.array([begin + at not in bad for at in range(len(places))], np.bool_)
        batch.pieces.append(piece.chosen(good, places[good]))
        shards, records = self._plan.catalog.locate(batch.ids[places])
        for at in np.flatnonzero(~good).tolist():
            batch.bad.append(
                BadRecord(
                    slot=int(places[at]),
                    shard=self._plan.catalog.shards[int(shards[at])].name,
                    record=int(records[at]),
                    reason=bad[begin + at],
                    note=b"" if piece.notes is None else bytes(piece.buffer[slice(*piece.notes[at].tolist())]),
                )
            )

    def take(self, most: int = MOST_FILLED) -> WholeBatch | None:
        """Return the next batch that may be handed out, or None while it is not complete.

        Args:
            most: how many of the next batches may be filled.
        """
        key = self._next_whole()
        if key is None and self._runs:
            self._fill(most)
            key = self._next_whole()
        if key is None:
            return None
        batch = self._open[key]
        del self._whole[key], self._open[key]
        if key != (self.next_epoch, self.next_step):
            self._taken.add(key)
            return batch
        self._advance()
        while self._taken and (self.next_epoch, self.next_step) in self._taken:
            self._taken.discard((self.next_epoch, self.next_step))
            self._advance()
        part = self.next_epoch, self.next_step * self._plan.spec.batch_size // _PART_SLOTS
        if part != self._part:
            self._part = part
            self._here = {part: flags for part, flags in self._here.items() if part >= self._part}
        return batch

    def _next_whole(self) -> tuple[int, int] | None:
        if self._in_order:
            key = (self.next_epoch, self.next_step)
            return key if key in self._whole else None
        # An epoch's last batch goes out before the next epoch's first: the user's loop ends in between.
        return next((key for key in self._whole if key[0] == self.next_epoch), None)

    def _advance(self) -> None:
        self.next_step += 1
        self._skip_empty_epochs()

    def _skip_empty_epochs(self) -> None:
        while self.next_step >= self._epoch(self.next_epoch).steps:
            self.next_epoch, self.next_step = self.next_epoch + 1, 0
            self._epochs = {number: epoch for number, epoch in self._epochs.items() if number >= self.next_epoch}

    def _epoch(self, number: int) -> EpochPlaces:
        epoch = self._epochs.get(number)
        if epoch is None:
            plan = self._plan.epoch(number, self.origin_of(number))
            epoch = self._epochs[number] = EpochPlaces(plan, self._rank, self._owners, len(self._streams))
        return epoch

    def _begin(self, key: tuple[int, int]) -> WholeBatch:
        epoch, size = self._epoch(key[0]), self._plan.spec.batch_size
        first = key[1] * size
        records = min(size, epoch.slots - first)
        draws = epoch.plan.seed_numbers(self._rank, first, first + records) if epoch.plan.repeats else None
        batch = WholeBatch(epoch=key[0], step=key[1], count=records, ids=epoch.ids_from(first, records), draws=draws)
        self._open[key] = batch
        return batch
