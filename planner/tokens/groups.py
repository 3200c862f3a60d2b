"""Groups: the pools that are cut together, and the number of their batches.

They are the same on all ranks. A group is usually one pool. All ranks get as many batches as the
rank that needs most. If a rank has too few records left for that, as in pools of which much was
handed out before the world size changed, the next pools join the group.

Covers: groups in order, computed as far as they are asked for. Does not cover: the batches
themselves (epoch.py).
"""

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.planner.tokens.cutting import Cut
from emlio.planner.tokens.pools import Pools

__all__ = ["TokenGroup", "TokenGroups"]

_LOOKED_AT: Final = 2**20
"""Records examined at once: some 30 MB of arrays, and about 0.2 s."""

_MOST_JOINED: Final = 4
"""A rank keeps a group's records until their batches are made: no pool joins a group that has as
many pools' worth of records."""


class TokenGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Pools that are cut together.

    Attributes:
        first_pool: its first pool, counted from the epoch's origin.
        end_pool: one after its last pool.
        first_batch: its first batch among those of all groups.
        end_batch: one after its last batch.
        first_place: the epoch's place at which it begins; the same whatever the origin is.
        end_place: one after its last place.
    """

    first_pool: int
    end_pool: int
    first_batch: int
    end_batch: int
    first_place: int
    end_place: int

    @property
    def batches(self) -> int:
        """The number of batches that every rank gets of the group."""
        return self.end_batch - self.first_batch


class _Run(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Consecutive groups: item g of each array is the begin of group g, the last item their end."""

    pools: npt.NDArray[np.int64]
    batches: npt.NDArray[np.int64]
    repeated: int


class TokenGroups:
    """The groups of one epoch from its origin on.

    Results are kept, 16 bytes per group. Threads may share it: at worst two compute the same.
    """

    __slots__ = ("_cut", "_pools", "_runs")

    def __init__(self, pools: Pools, cut: Cut) -> None:
        self._pools = pools
        self._cut = cut
        self._runs: tuple[_Run, ...] = ()

    @property
    def batches(self) -> int:
        """The number of batches of all groups. Examines every record that was not examined yet."""
        return int(self._all()[-1].batches[-1]) if len(self._pools) else 0

    @property
    def repeated(self) -> int:
        """The records or pieces handed out for the second time, over all groups and ranks."""
        return sum(run.repeated for run in self._all())

    def at(self, batch: int) -> TokenGroup | None:
        """Return the group that has this batch; None if the epoch has no such batch."""
        runs = self._runs
        while not runs or int(runs[-1].batches[-1]) <= batch:
            if self._is_whole(runs):
                return None
            runs = self._further(runs)
        low, high = 0, len(runs) - 1
        while low < high:
            middle = (low + high) // 2
            if int(runs[middle].batches[-1]) > batch:
                high = middle
            else:
                low = middle + 1
        run = runs[low]
        number = int(np.searchsorted(run.batches, batch, side="right")) - 1
        first_pool, end_pool = int(run.pools[number]), int(run.pools[number + 1])
        return TokenGroup(
            first_pool=first_pool,
            end_pool=end_pool,
            first_batch=int(run.batches[number]),
            end_batch=int(run.batches[number + 1]),
            first_place=self._pools.plan.consumed(first_pool),
            end_place=self._pools.plan.consumed(end_pool),
        )

    def _is_whole(self, runs: tuple[_Run, ...]) -> bool:
        return (int(runs[-1].pools[-1]) if runs else 0) == len(self._pools)

    def _all(self) -> tuple[_Run, ...]:
        runs = self._runs
        while not self._is_whole(runs):
            runs = self._further(runs)
        return runs

    def _further(self, runs: tuple[_Run, ...]) -> tuple[_Run, ...]:
        """Compute and add one more run.

        A tuple is never changed, so another thread sees either the old or the new one, both valid.
        """
        spec = self._pools.plan.spec
        first, before = (int(runs[-1].pools[-1]), int(runs[-1].batches[-1])) if runs else (0, 0)
        # Few pools at the beginning, so that the first batch does not wait for much later ones.
        at_once = min(max(_LOOKED_AT // (spec.batch_size * spec.world_size), 1), 2 ** len(runs))
        end = min(first + at_once, len(self._pools))
        needed, most, _ = self._look(first, end, together=False)
        wanted = needed.max(axis=1)
        lacking = np.flatnonzero((wanted == 0) | (most.min(axis=1) < wanted))
        repeated = 0
        if lacking.size and not lacking[0]:
            end, count, repeated = self._join(first)
            pools, counts = np.array([first, end]), np.array([count])
        else:
            end = first + int(lacking[0]) if lacking.size else end
            pools, counts = np.arange(first, end + 1), wanted[: end - first]
        batches = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts))) + before
        self._runs = (*runs, _Run(pools=pools, batches=batches, repeated=repeated))
        return self._runs

    def _join(self, first: int) -> tuple[int, int, int]:
        """Return the group that begins with a pool that does not suffice.

        Returns:
            The group's end, its number of batches, and the number of repeated records or pieces.
        """
        end = first + 1
        while True:
            needed, most, records = self._look(first, end, together=True)
            wanted, least = int(needed.max()), int(most.min())
            full = int(records.max()) >= _MOST_JOINED * self._pools.plan.spec.batch_size
            if (wanted and least >= wanted) or end == len(self._pools) or full:
                return end, wanted, int(np.maximum(wanted - most, 0).sum())
            end = min(2 * end - first, len(self._pools))

    def _look(
        self, first: int, end: int, *, together: bool
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the fewest and the most batches of each share, and the number of its records.

        The arrays have the shape (pools or 1, ranks).
        """
        spec = self._pools.plan.spec
        ranks_at_once = max(_LOOKED_AT // ((end - first) * spec.batch_size), 1)
        needed: list[npt.NDArray[np.int64]] = []
        most: list[npt.NDArray[np.int64]] = []
        records: list[npt.NDArray[np.int64]] = []
        for rank in range(0, spec.world_size, ranks_at_once):
            lengths = self._pools.shares(first, end, rank, min(rank + ranks_at_once, spec.world_size))
            if together:
                lengths = lengths.transpose(1, 0, 2).reshape(1, lengths.shape[1], -1)
            shares = lengths.reshape(-1, lengths.shape[2])
            needed.append(self._cut.needed(shares).reshape(lengths.shape[:2]))
            most.append(self._cut.most(shares).reshape(lengths.shape[:2]))
            records.append(np.count_nonzero(lengths, axis=2))
        return np.concatenate(needed, axis=1), np.concatenate(most, axis=1), np.concatenate(records, axis=1)
