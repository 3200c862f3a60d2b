"""One epoch of one rank, place by place: which record belongs there, and which stream owes it.

Covers: computing both in parts, as far as they are needed. Pure. Does not cover: what has been
received (emlio.receiver.placement.reorder).
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.planner.plan import EpochPlan

__all__ = ["EpochPlaces"]

_CHUNK_SLOTS = 8192
"""Places whose records are computed at once: array code pays from a few thousand on, and a chunk is
160 kB."""

_CHUNKS_KEPT = 64


class _Chunk(msgspec.Struct, frozen=True, eq=False):
    """Some places of an epoch: their records, shards and streams."""

    ids: npt.NDArray[np.int64]
    shards: npt.NDArray[np.int32]  # of the records
    owed: tuple[npt.NDArray[np.int64], ...]  # for each stream its places, rising


class EpochPlaces:
    """One epoch of this rank, as far as it is needed."""

    def __init__(self, plan: EpochPlan, rank: int, owners: npt.NDArray[np.int64], streams: int) -> None:
        self.plan = plan
        self.slots = plan.slots(rank)
        self.steps = plan.steps
        self._rank = rank
        self._owners = owners
        self._streams = streams
        self._chunks: OrderedDict[int, _Chunk] = OrderedDict()

    def chunk(self, number: int) -> _Chunk:
        """Return the part with this number."""
        chunk = self._chunks.get(number)
        if chunk is None:
            first = number * _CHUNK_SLOTS
            ids = self.plan.ids(self._rank, first, min(first + _CHUNK_SLOTS, self.slots))
            shards = self.plan.catalog.shards_of(ids)
            stream = self._owners[shards]
            owed = tuple(np.flatnonzero(stream == which) + first for which in range(self._streams))
            chunk = self._chunks[number] = _Chunk(ids, shards.astype(np.int32), owed)
            while len(self._chunks) > _CHUNKS_KEPT:
                self._chunks.popitem(last=False)
        return chunk

    def owed(self, stream: int, slot: int, count: int) -> npt.NDArray[np.int64]:
        """Return `count` places that the stream owes from `slot` on; fewer if the epoch ends."""
        found: list[npt.NDArray[np.int64]] = []
        number = slot // _CHUNK_SLOTS
        while count > 0 and number * _CHUNK_SLOTS < self.slots:
            places = self.chunk(number).owed[stream]
            begin = int(np.searchsorted(places, slot)) if not found else 0
            part = places[begin : begin + count]
            found.append(part)
            count -= len(part)
            number += 1
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def parts_from(self, slot: int) -> Iterable[int]:
        """Return the first place of the part with place `slot`, and of each part after it."""
        return range(slot - slot % _CHUNK_SLOTS, self.slots, _CHUNK_SLOTS)

    def part(self, begin: int) -> npt.NDArray[np.int32]:
        """Return the shards of the records in the part that begins at this place."""
        return self.chunk(begin // _CHUNK_SLOTS).shards

    def shards_owed(self, stream: int, begin: int, end: int) -> Iterator[npt.NDArray[np.int32]]:
        """Yield the shards of the records that the stream owes in this range, in parts."""
        for number in range(begin // _CHUNK_SLOTS, -(-min(end, self.slots) // _CHUNK_SLOTS)):
            chunk = self.chunk(number)
            first, after = np.searchsorted(chunk.owed[stream], (begin, end))
            yield chunk.shards[chunk.owed[stream][first:after] - number * _CHUNK_SLOTS]

    def all_owed(self, stream: int, slot: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the places that the stream owes from `slot` on, in parts."""
        number = slot // _CHUNK_SLOTS
        while number * _CHUNK_SLOTS < self.slots:
            owed = self.chunk(number).owed[stream]
            yield owed[np.searchsorted(owed, slot) :]
            number += 1

    def reassign(self, owners: npt.NDArray[np.int64], streams: int) -> None:
        """Set the streams that carry the shards from now on, and their number."""
        self._owners, self._streams = owners, streams
        self.forget()

    def forget(self) -> None:
        """Compute all parts anew from now on."""
        self._chunks.clear()

    def ids_from(self, slot: int, count: int) -> npt.NDArray[np.int64]:
        """Return the records at `count` places from `slot` on."""
        number, begin = divmod(slot, _CHUNK_SLOTS)
        if begin + count <= _CHUNK_SLOTS:
            return self.chunk(number).ids[begin : begin + count].copy()
        return self.ids_at(np.arange(slot, slot + count))

    def ids_at(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the records at these places."""
        first, last = int(slots[0]) // _CHUNK_SLOTS, int(slots[-1]) // _CHUNK_SLOTS
        if first == last:
            return self.chunk(first).ids[slots - first * _CHUNK_SLOTS]
        ids = np.concatenate([self.chunk(number).ids for number in range(first, last + 1)])
        return ids[slots - first * _CHUNK_SLOTS]
