"""One epoch, divided among ranks.

Step g of all ranks together takes the places [origin + g*W*B, origin + (g+1)*W*B), rank r the r-th
run of B of them. So the order of the epoch does not depend on the number of ranks, and what a job
has consumed is one number.

Covers: which places, and so which records, are in which batch of which rank; the tail; continuing
in the middle of an epoch; walking one rank's part restricted to some shards. Does not cover: the
order itself (order.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.block_order import BlockOrder
from emlio.planner.catalog import Catalog
from emlio.planner.order import InvertibleOrder, Order, RepeatingOrder
from emlio.planner.spec import PlanSpec

__all__ = ["CHUNK", "EpochPlan", "stretches", "walk"]

CHUNK: Final = 16384
"""Slots that a walk processes at once: about a millisecond's work, and arrays that stay in the
second-level cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """One epoch from `origin` on. Immutable, so threads may share it.

    A slot is the running number of a sample at one rank: 0 is the first that the rank gets at or
    after `origin`.

    Attributes:
        catalog: the dataset.
        spec: the spec.
        epoch: its number, in [0, 2**63).
        origin: the number of places of the epoch that were handed out before, over all ranks.
        length: the number of places of the whole epoch.
        steps: the number of batches of each rank; the same for all.
        repeated: the number of samples handed out for the second time in this epoch, over all
            ranks.
    """

    catalog: Catalog
    spec: PlanSpec
    epoch: int
    origin: int = 0
    length: int = field(init=False)
    steps: int = field(init=False)
    repeated: int = field(init=False)
    _order: Order = field(init=False, repr=False, compare=False)
    _repeating: RepeatingOrder | None = field(init=False, repr=False, compare=False)
    _invertible: InvertibleOrder | None = field(init=False, repr=False, compare=False)
    _full_steps: int = field(init=False, repr=False, compare=False)
    _tail: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        length = self.spec.sampling.places(self.catalog)
        if not 0 <= self.epoch < 2**63:
            raise ConfigError(f"epoch must be in [0, 2**63), got {self.epoch}")
        if not 0 <= self.origin <= length:
            raise ConfigError(f"origin must be in [0, {length}], got {self.origin}")
        full_steps, rest = divmod(length - self.origin, self.spec.batch_size * self.spec.world_size)
        tail = 0 if self.spec.drop_last else rest
        object.__setattr__(self, "length", length)
        object.__setattr__(self, "_full_steps", full_steps)
        object.__setattr__(self, "_tail", tail)
        object.__setattr__(self, "steps", full_steps + (tail > 0))
        order = self.spec.sampling.order(self.catalog, self.spec.shuffle, self.spec.seed, self.epoch)
        object.__setattr__(self, "_order", order)
        object.__setattr__(self, "_repeating", order if isinstance(order, RepeatingOrder) else None)
        object.__setattr__(self, "_invertible", order if isinstance(order, InvertibleOrder) else None)
        wanted = self.spec.world_size * (self.spec.batch_size if self.spec.pad else 1)
        object.__setattr__(self, "repeated", max(wanted - tail, 0) if tail else 0)

    def _tail_run(self, rank: int) -> tuple[int, int]:
        """Return the begin and the length of a rank's run in the last, partial step."""
        if not self._tail:
            return 0, 0
        if self.spec.pad:
            return rank * self.spec.batch_size, self.spec.batch_size
        share, more = divmod(self._tail, self.spec.world_size)
        if not share:
            # Fewer places than ranks: one each; the order begins again for ranks that would get
            # none.
            return rank, 1
        return rank * share + min(rank, more), share + (rank < more)

    def _check_rank(self, rank: int) -> None:
        if not 0 <= rank < self.spec.world_size:
            raise ConfigError(f"rank must be in [0, {self.spec.world_size}), got {rank}")

    def slots(self, rank: int) -> int:
        """Return the number of samples of the rank."""
        self._check_rank(rank)
        return self._full_steps * self.spec.batch_size + self._tail_run(rank)[1]

    def windows(self, rank: int, slot: int, least: int) -> tuple[int, int, int] | None:
        """Return the places of the window that a slot is in, first and after the last, and the rank's slot after it.

        None if the order has no blocks. See `BlockOrder.windows`.
        """
        if not isinstance(self._order, BlockOrder):
            return None
        first, end = self._order.windows(int(self.places(rank, slot, slot + 1)[0]), least)
        return first, end, max(self._slots_before(rank, end), slot + 1)

    def _slots_before(self, rank: int, place: int) -> int:
        """Return the number of a rank's slots before a place."""
        batch = self.spec.batch_size
        step, rest = divmod(place - self.origin, batch * self.spec.world_size)
        if step < self._full_steps:
            return step * batch + min(max(rest - rank * batch, 0), batch)
        begin, length = self._tail_run(rank)
        full = self._full_steps
        into = place - self.origin - full * batch * self.spec.world_size - begin
        return full * batch + min(max(into, 0), length)

    def batch_slots(self, rank: int, step: int) -> tuple[int, int]:
        """Return the slots of one batch: the first, and the one after the last."""
        if not 0 <= step < self.steps:
            raise ConfigError(f"step must be in [0, {self.steps}), got {step}")
        first = step * self.spec.batch_size
        return first, min(first + self.spec.batch_size, self.slots(rank))

    def consumed(self, step: int) -> int:
        """Return the number of places handed out after `step` steps: the next origin."""
        if not 0 <= step <= self.steps:
            raise ConfigError(f"step must be in [0, {self.steps}], got {step}")
        return min(self.origin + step * self.spec.batch_size * self.spec.world_size, self.length)

    def places(self, rank: int, first_slot: int, end_slot: int) -> npt.NDArray[np.int64]:
        """Return the places of the rank's slots from `first_slot` up to before `end_slot`."""
        slots = self.slots(rank)
        if not 0 <= first_slot <= end_slot <= slots:
            raise ConfigError(f"slots of rank {rank} must be in [0, {slots}], got {first_slot} to {end_slot}")
        batch, world = self.spec.batch_size, self.spec.world_size
        places = np.arange(first_slot, end_slot, dtype=np.int64)
        full_slots = self._full_steps * batch
        in_full = max(min(end_slot, full_slots) - first_slot, 0)
        if in_full:
            # The other ranks' batches lie between two batches of this rank.
            full = places[:in_full]
            full += (full // batch) * (batch * (world - 1)) + (self.origin + rank * batch)
        if in_full < places.size:
            tail = places[in_full:]
            tail += self.origin + self._full_steps * batch * world + self._tail_run(rank)[0] - full_slots
            tail %= self.length
        return places

    def ids(self, rank: int, first_slot: int, end_slot: int) -> npt.NDArray[np.int64]:
        """Return the records at the rank's slots from `first_slot` up to before `end_slot`.

        The cost depends only on the length of the range.
        """
        return self._order.ids(self.places(rank, first_slot, end_slot))

    @property
    def repeats(self) -> bool:
        """Return whether a record may come several times, apart from the last step."""
        return self._repeating is not None

    def seed_numbers(self, rank: int, first_slot: int, end_slot: int) -> npt.NDArray[np.int64]:
        """Return the number from which the seed of each slot's record is drawn.

        It is the record's id when the record comes for the first time in the epoch, and another number each further time.
        """
        places = self.places(rank, first_slot, end_slot)
        numbers = self._order.ids(places)
        if self._repeating is not None:
            numbers += self._repeating.times(places) * self.catalog.records
        return numbers

    def places_of(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """Return the place of each record in the epoch's order; None if the order does not tell.

        The cost depends only on the number of records.
        """
        return self._invertible.places(ids) if self._invertible is not None else None

    def receivers(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the rank that gets each place, or -1 for a place before the origin, or left out.

        The last step's places are told as if it were a full one.
        """
        batch, world = self.spec.batch_size, self.spec.world_size
        since = places - self.origin
        ranks: npt.NDArray[np.int64] = since // batch % world
        ranks[since < 0] = -1
        if not self._tail:
            ranks[since >= self._full_steps * batch * world] = -1
        return ranks

    def ids_at(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the records at places of the epoch's order, whichever rank gets them."""
        return self._order.ids(places)


def walk(
    epoch_plan: EpochPlan,
    rank: int,
    first_slot: int = 0,
    owned: npt.NDArray[np.bool_] | None = None,
    chunk: int = CHUNK,
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield the rank's records in some shards, in order: `stretches` without empty arrays."""
    return (found for found in stretches(epoch_plan, rank, first_slot, owned, chunk) if found[0].size)


def stretches(
    epoch_plan: EpochPlan,
    rank: int,
    first_slot: int = 0,
    owned: npt.NDArray[np.bool_] | None = None,
    chunk: int = CHUNK,
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield the rank's records in some of the shards, in the rank's order.

    Args:
        epoch_plan: the epoch.
        rank: the rank.
        first_slot: the slot to begin from; any slot up to the rank's last.
        owned: for each shard whether it counts; all if None.
        chunk: the number of slots processed at once, which limits the memory.

    Yields:
        Slots, their shards' indexes, and their numbers within the shards: arrays of equal length,
        once for each chunk. They are empty for a chunk without such a record, so that the caller
        regains control.
    """
    catalog = epoch_plan.catalog
    if chunk < 1:
        raise ConfigError(f"chunk must be at least 1, got {chunk}")
    if owned is not None and owned.shape != (len(catalog.shards),):
        raise ConfigError(f"owned must have one item for each of {len(catalog.shards)} shards, got {owned.shape}")
    slots = epoch_plan.slots(rank)
    if not 0 <= first_slot <= slots:
        raise ConfigError(f"first_slot of rank {rank} must be in [0, {slots}], got {first_slot}")
    return _walk(epoch_plan, rank, range(first_slot, slots, chunk), slots, owned)


def _walk(
    epoch_plan: EpochPlan, rank: int, starts: range, slots: int, owned: npt.NDArray[np.bool_] | None
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    catalog = epoch_plan.catalog
    for start in starts:
        end = min(start + starts.step, slots)
        ids = epoch_plan.ids(rank, start, end)
        shards = catalog.shards_of(ids)
        if owned is None:
            yield np.arange(start, end, dtype=np.int64), shards, ids - catalog.bases[shards]
            continue
        kept = np.flatnonzero(owned[shards])
        shards = shards[kept]
        yield kept + start, shards, ids[kept] - catalog.bases[shards]
