"""What streams owe, in bytes as far as that is known before it comes: a record counts as much as the mean one of its shard.

Covers: adding up a part of the plan. Pure. Does not cover: who owes what (emlio.receiver.epoch_places), the credit that follows
from it (emlio.receiver.grants).
"""

from collections.abc import Callable, Iterator

import numpy as np

from emlio.planner.catalog import Catalog
from emlio.receiver.epoch_places import EpochPlaces
from emlio.receiver.grants import Owed
from emlio.session.credits import Place

__all__ = ["PlanSchedule"]


class PlanSchedule:
    """A rank's part of the plan up to the end of the epoch after the user's."""

    def __init__(self, catalog: Catalog, places: Callable[[int], EpochPlaces], epochs: int | None = None) -> None:
        """See the class.

        Args:
            catalog: the shards.
            places: of an epoch.
            epochs: after which the plan ends.
        """
        self._places = places
        self._epochs = epochs
        records = np.array([shard.records for shard in catalog.shards], np.float64)
        sizes = np.array([shard.size_bytes for shard in catalog.shards], np.float64)
        self._record_bytes = np.divide(sizes, records, out=np.zeros_like(sizes), where=records > 0)

    def place_after(self, place: Place, size_bytes: int) -> Place:
        """Up to where so many bytes lie from this place on; further for a single record, no further than the next epoch's end."""
        left = float(size_bytes)
        for epoch, first in self._from(place):
            slot = first
            for shards in self._places(epoch).shards_from(first):
                sums = np.cumsum(self._record_bytes[shards])
                fit = int(np.searchsorted(sums, left, side="right"))
                if fit < len(shards):
                    return (epoch, slot + fit) if fit or slot > first or epoch > place[0] else self._next(place)
                left -= float(sums[-1])
                slot += len(shards)
        return self._end(place)

    def owed(self, stream: int, begin: Place, end: Place) -> Owed:
        """What the stream owes of the places from `begin` up to `end`."""
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

    def _next(self, place: Place) -> Place:
        epoch, slot = place
        return (epoch, slot + 1) if slot + 1 < self._places(epoch).slots else (epoch + 1, 0)

    def _from(self, place: Place) -> Iterator[tuple[int, int]]:
        """Epochs from this place on, each with the slot to begin at."""
        for epoch in range(place[0], self._end(place)[0]):
            yield epoch, place[1] if epoch == place[0] else 0

    def _end(self, place: Place) -> Place:
        after = place[0] + 2
        return (after if self._epochs is None else min(after, max(self._epochs, place[0]))), 0
