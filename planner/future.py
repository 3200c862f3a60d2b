"""The time at which the ranks of a job need records next, as far as their plan and their pace tell.

Pure. A rank's next use of a record follows from the place of the record in this epoch's order, or in
the next one's if the rank is past it; the time until then from the rank's own pace.
"""

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.planner.epoch import EpochPlan
from emlio.planner.plan import Plan

__all__ = ["NEVER", "Future", "expected_hits"]

NEVER: Final = np.inf
"""The time until a use that will not be, or that nothing is known of."""

_STILL_S: Final = 2.0
_STILL_TURNS: Final = 16
"""A rank that took nothing for so long, and for so many times its usual pause, is left out: nothing is kept for it."""

_SMOOTHED: Final = 0.1
"""The weight of the last pause in the pace: about the last ten messages count."""

_EPOCHS_KEPT: Final = 4


class _Rank(msgspec.Struct, kw_only=True):
    """One rank's way through the plan.

    Attributes:
        epoch: the epoch that it is in.
        origin: samples of that epoch that were handed out before it began.
        front: the first place of that epoch that it may still need.
        end: the first epoch that it does not need; None if it needs all.
        moved_ns: when it last took something.
        taken: the places that it usually takes at a time; 0 before the first time.
        pause_ns: the usual time between that.
    """

    epoch: int
    origin: int
    front: int
    end: int | None
    moved_ns: int
    taken: float = 0
    pause_ns: float = 0

    @property
    def pace(self) -> float:
        """Places per second; 0 if that is not known yet."""
        return self.taken / self.pause_ns * 1e9 if self.pause_ns else 0.0

    def is_still(self, now_ns: int) -> bool:
        """Return whether it goes on no more, as far as can be told."""
        return now_ns - self.moved_ns > max(_STILL_S * 1e9, _STILL_TURNS * self.pause_ns)

    def take(self, places: int, now_ns: int) -> None:
        """Note what it took."""
        weight = _SMOOTHED if self.taken else 1.0
        self.taken += weight * (max(places, 1) - self.taken)
        self.pause_ns += weight * (max(now_ns - self.moved_ns, 1) - self.pause_ns)
        self.moved_ns = now_ns


class Future:
    """The needs of the ranks of one plan, each at most once. Used under its owner's lock.

    Records are named by their ids in the plan's catalog.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._ranks: dict[int, _Rank] = {}
        self._epochs: dict[tuple[int, int], EpochPlan] = {}

    @property
    def is_told(self) -> bool:
        """True if the plan's orders tell where a record is."""
        return self.plan.epoch(0).places_of(np.zeros(1, np.int64)) is not None

    def __len__(self) -> int:
        return len(self._ranks)

    def has(self, rank: int) -> bool:
        """Return whether the rank takes part."""
        return rank in self._ranks

    def begin(self, rank: int, epoch: int, origin: int, slot: int, end: int | None, now_ns: int) -> None:
        """Let a rank take part, from a slot of an epoch on."""
        plan = self._epoch(epoch, origin)
        slot = min(slot, plan.slots(rank))
        front = int(plan.places(rank, slot, slot + 1)[0]) if slot < plan.slots(rank) else plan.length
        self._ranks[rank] = _Rank(epoch=epoch, origin=origin, front=front, end=end, moved_ns=now_ns)

    def leave(self, rank: int) -> None:
        """Let a rank take part no longer."""
        self._ranks.pop(rank, None)

    def moved(self, rank: int, epoch: int, last_id: int, now_ns: int) -> None:
        """Note that a rank, if it still takes part, has taken everything up to a record."""
        one = self._ranks.get(rank)
        if one is None:
            return
        before = one.front
        if epoch != one.epoch:
            before -= (epoch - one.epoch) * self._length
            one.epoch, one.origin, one.front = epoch, 0, 0
        found = self._epoch(epoch, one.origin).places_of(np.array([last_id], np.int64))
        assert found is not None
        one.front = max(one.front, int(found[0]) + 1)  # the order may begin again at its end
        one.take(one.front - before, now_ns)

    def seconds_until(self, ids: npt.NDArray[np.int64], now_ns: int) -> npt.NDArray[np.float64]:
        """Return the time until each record is needed next; `NEVER` if it is not."""
        result = np.full(ids.shape, NEVER)
        ranks = {number: one for number, one in self._ranks.items() if not one.is_still(now_ns)}
        if not ranks or not ids.size:
            return result
        known = [one.pace for one in ranks.values() if one.pace]
        usual = sum(known) / len(known) if known else 1.0
        world = self.plan.spec.world_size
        epoch = np.full(world, -1, np.int64)
        front, pace, end = np.zeros(world, np.int64), np.full(world, usual), np.full(world, np.iinfo(np.int64).max)
        for number, one in ranks.items():
            epoch[number], front[number], pace[number] = one.epoch, one.front, one.pace or usual
            if one.end is not None:
                end[number] = one.end
        begins = {(one.epoch, one.origin) for one in ranks.values()}
        # Ranks may be any number of epochs apart; each needs most records in its own epoch or the next one.
        numbers = sorted({at + more for at, _ in begins for more in (0, 1)})
        left = np.arange(ids.size)
        for number in numbers:
            origin = max((one for at, one in begins if at == number), default=0)
            plan = self._epoch(number, origin)
            places = plan.places_of(ids[left])
            assert places is not None
            of = plan.receivers(places)
            of[(of >= 0) & (epoch[of] < 0)] = -1
            away = places - front[of] + (number - epoch[of]) * self._length
            needed = (of >= 0) & (away >= 0) & (number < end[of])
            if number > numbers[0]:
                needed &= epoch[of] <= number
            result[left[needed]] = away[needed] / pace[of[needed]]
            left = left[~needed]
            if not left.size:
                break
        return result

    @property
    def _length(self) -> int:
        return self.plan.places

    def _epoch(self, number: int, origin: int) -> EpochPlan:
        plan = self._epochs.get((number, origin))
        if plan is None:
            plan = self._epochs[number, origin] = self.plan.epoch(number, origin)
            while len(self._epochs) > _EPOCHS_KEPT:
                del self._epochs[next(iter(self._epochs))]
        return plan


_STEPS: Final = 1000


def expected_hits(part: float, jobs: int) -> float:
    """Return the part of all reads that a cache with foresight saves, of jobs with independent orders at one pace.

    A cache that keeps what is needed soonest keeps what is needed within some time, whatever its size is. Each job
    takes every record once an epoch, at a random time of it.

    Args:
        part: how much of the dataset it holds.
        jobs: how many there are.
    """
    if jobs < 1 or part <= 0:
        return 0.0
    away = np.linspace(0, 2, 2 * _STEPS + 1)  # in epochs
    # The job that took it last takes it at a random time of the next epoch; another one anywhere in its own way.
    own = np.where(away < 1, 1 - away**2 / 2, (2 - away) ** 2 / 2)
    other = np.where(away < 1, 1 - away + away**3 / 6, np.maximum(2 - away, 0) ** 3 / 6)
    not_yet = own * other ** (jobs - 1)
    kept = jobs * np.cumsum(away[1:] * -np.diff(not_yet))
    within = int(np.searchsorted(kept, part))
    return float(1 - not_yet[min(within, len(not_yet) - 1)])
