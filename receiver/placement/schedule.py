"""The bytes that streams owe, estimated: a record counts as the mean of its shard.

Covers: adding up a part of the plan. Pure. Does not cover: which stream owes what
(emlio.receiver.placement.epoch_places), the resulting credit (emlio.receiver.placement.grants).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from emlio.planner.catalog import Catalog
from emlio.receiver.placement.epoch_places import EpochPlaces
from emlio.receiver.placement.grants import Owed
from emlio.session.credits import Place

__all__ = ["PlanSchedule"]

_SUMS_KEPT = 256
"""Sums over parts of an epoch, 64 KiB each: two million records, more than a window holds of any
but tiny records."""


class PlanSchedule:
    """A rank's part of the plan up to the end of the epoch after the user's.

    Attributes:
        last: the place after all others; None if there is no end.
    """

    def __init__(
        self,
        catalog: Catalog,
        places: Callable[[int], EpochPlaces],
        epochs: int | None = None,
        *,
        place_bytes: int = 0,
    ) -> None:
        """Prepare the sums.

        Args:
            catalog: the shards.
            places: returns the places of an epoch.
            epochs: the number of epochs after which the plan ends; None without an end.
            place_bytes: what a record takes of the window besides its bytes.
        """
        self._places = places
        self._epochs = epochs
        self.last = None if epochs is None else (epochs, 0)
        records = np.array([shard.records for shard in catalog.shards], np.float64)
        sizes = np.array([shard.size_bytes for shard in catalog.shards], np.float64)
        self._record_bytes = np.divide(sizes, records, out=np.zeros_like(sizes), where=records > 0)
        self._held_bytes = self._record_bytes + place_bytes
        # Credit is given many times while the user goes through one part of an epoch: each part is
        # summed once.
        self._sums: OrderedDict[Place, npt.NDArray[np.float64]] = OrderedDict()

    def place_after(self, place: Place, size_bytes: int) -> Place:
        """Return the place before which this much of the window is filled from `place` on.

        Further for a single record, but not beyond the end of the next epoch. Sums of parts before
        this place are dropped: they are not needed again.
        """
        left = float(size_bytes)
        self._drop_before(place)
        for epoch, first in self._from(place):
            for begin in self._places(epoch).parts_from(first):
                sums = self._sums_of((epoch, begin))
                at = max(first - begin, 0)
                before = float(sums[at - 1]) if at else 0.0
                fit = int(np.searchsorted(sums, left + before, side="right"))
                if fit < len(sums):
                    after = (epoch, begin + max(fit, at))
                    return after if after > place else self._next(place)
                left -= float(sums[-1]) - before
        return self._end(place)

    def owed(self, stream: int, begin: Place, end: Place) -> Owed:
        """Return what the stream owes from `begin` up to `end`."""
        records, size_bytes = 0, 0.0
        for epoch in range(begin[0], end[0] + 1):
            first = begin[1] if epoch == begin[0] else 0
            after = end[1] if epoch == end[0] else self._places(epoch).slots
            if first >= after:
                continue
            for shards in self._places(epoch).shards_owed(stream, first, after):
                records += len(shards)
                size_bytes += float(self._record_bytes[shards].sum())
        return Owed(records=records, size_bytes=round(size_bytes))

    def _sums_of(self, part: Place) -> npt.NDArray[np.float64]:
        sums = self._sums.get(part)
        if sums is None:
            epoch, begin = part
            sums = self._sums[part] = np.cumsum(self._held_bytes[self._places(epoch).part(begin)])
            while len(self._sums) > _SUMS_KEPT:
                self._sums.popitem(last=False)
        return sums

    def _drop_before(self, place: Place) -> None:
        while self._sums:
            (epoch, begin), sums = next(iter(self._sums.items()))
            if (epoch, begin + len(sums)) > place:
                return
            self._sums.popitem(last=False)

    def _next(self, place: Place) -> Place:
        epoch, slot = place
        return (epoch, slot + 1) if slot + 1 < self._places(epoch).slots else (epoch + 1, 0)

    def _from(self, place: Place) -> Iterator[tuple[int, int]]:
        """Yield the epochs from this place on, each with the slot to begin at."""
        for epoch in range(place[0], self._end(place)[0]):
            yield epoch, place[1] if epoch == place[0] else 0

    def _end(self, place: Place) -> Place:
        after = place[0] + 2
        return (after if self._epochs is None else min(after, max(self._epochs, place[0]))), 0
