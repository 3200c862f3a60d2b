"""The records of an epoch's pools that are left to be handed out, and their lengths.

A pool is one step of a plan: `batch_size` records for each rank, from which token batches are made.

Covers: one rank's share, and many shares at once. Does not cover: cutting them (padded.py,
packed.py), which pools are cut together (groups.py).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from emlio.planner.epoch import EpochPlan
from emlio.planner.tokens.handed_out import HandedOut

__all__ = ["Pools", "Share"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Share:
    """A rank's records in a run of pools. Arrays have one item per record, in the order of slots.

    Attributes:
        places: the places in the epoch.
        ids: the records.
        lengths: tokens left of each record, at least 1; 0 if this rank must not hand it out
            (again).
        begun: tokens of each record that were handed out before.
    """

    places: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int32]
    begun: npt.NDArray[np.int64]


class Pools:
    """The pools of one epoch from its origin on. Immutable, so threads may share it.

    Attributes:
        plan: the epoch; a pool is one of its steps.
        lengths: tokens by record id.
    """

    __slots__ = ("_full", "_handed_out", "_tail", "lengths", "plan")

    def __init__(self, plan: EpochPlan, lengths: npt.NDArray[np.int32], handed_out: HandedOut) -> None:
        self.plan = plan
        self.lengths = lengths
        self._handed_out = handed_out
        self._full, self._tail = divmod(plan.length - plan.origin, plan.spec.batch_size * plan.spec.world_size)

    def __len__(self) -> int:
        return self.plan.steps

    def slots(self, rank: int, first_pool: int, end_pool: int) -> tuple[int, int]:
        """Return the rank's slots in pools: the first, and the one after the last."""
        size = self.plan.spec.batch_size
        return first_pool * size, min(end_pool * size, self.plan.slots(rank))

    def share(self, rank: int, first_pool: int, end_pool: int) -> Share:
        """Return the rank's share of the pools from `first_pool` up to before `end_pool`."""
        places = self.plan.places(rank, *self.slots(rank, first_pool, end_pool))
        ids = self.plan.ids_at(places)
        lengths, begun = self._left(places, ids)
        if end_pool > self._full and rank >= self._tail:
            lengths[-1] = 0  # fewer places than ranks: this one is another rank's
        return Share(places=places, ids=ids, lengths=lengths, begun=begun)

    def shares(self, first_pool: int, end_pool: int, first_rank: int, end_rank: int) -> npt.NDArray[np.int32]:
        """Return the lengths left, as in `Share`, of shape (pools, ranks, batch_size).

        They are 0 also where a share has no more records.
        """
        size, world = self.plan.spec.batch_size, self.plan.spec.world_size
        full = min(end_pool, self._full)
        pools = np.arange(first_pool, full, dtype=np.int64)[:, np.newaxis, np.newaxis] * world
        ranks = np.arange(first_rank, end_rank, dtype=np.int64)[:, np.newaxis]
        places = ((pools + ranks) * size + np.arange(size, dtype=np.int64)) + self.plan.origin
        found = self._left(places.ravel(), self.plan.ids_at(places.ravel()))[0].reshape(places.shape)
        if end_pool <= self._full:
            return found
        tail = np.zeros((1, end_rank - first_rank, size), dtype=np.int32)
        for rank in range(first_rank, end_rank):
            lengths = self.share(rank, self._full, end_pool).lengths
            tail[0, rank - first_rank, : len(lengths)] = lengths
        return np.concatenate((found, tail))

    def _left(
        self, places: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        whole = self.lengths[ids]
        left = np.maximum(whole, np.int32(1))
        known, tokens = self._handed_out.find(places)
        begun = np.zeros(len(places) if known.size else 0, dtype=np.int64)
        if not known.size:
            return left, np.broadcast_to(np.int64(0), places.shape)
        begun[known] = tokens
        left[known] = np.maximum(whole[known] - tokens, 0)
        return left, begun
