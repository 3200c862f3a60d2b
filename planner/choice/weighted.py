"""A sampling with replacement: in an epoch each record comes about as often as its weight says.

The weights of all records, one behind the other, are a line. Draw k of n is the record at the point k * total / n behind a
start that the seed draws for the epoch. So a record of weight w comes w * n / total times, rounded down or up, and which it is
changes from epoch to epoch. Nothing is stored but the sums of the weights.

Covers: the draws, their order in each shuffle mode, which time of its record a draw is. Does not cover: the weights
(record_weights.py).
"""

import hashlib
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog
from emlio.planner.choice.choice import CHOICE
from emlio.planner.choice.record_weights import RecordWeights
from emlio.planner.choice.selection import count_by_shard
from emlio.planner.order import Order, Shuffle, make_order

__all__ = ["MOST_DRAWS", "Weighted"]

MOST_DRAWS: Final = 2**31
"""The most samples of an epoch: their products stay below 2**63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """Records drawn by weight.

    Attributes:
        weights: the weights of all records of the dataset.
        samples: the number of draws in an epoch.
        absent: classes that were given weights and have no records.
    """

    weights: RecordWeights
    samples: int
    absent: tuple[int | str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.samples <= MOST_DRAWS:
            raise ConfigError(f"samples must be a whole number in [1, {MOST_DRAWS}], got {self.samples}")

    def __str__(self) -> str:
        """Return the text that `parse_choice` reads."""
        return f"{CHOICE}weights={self.weights.digest}:{self.weights.count} samples={self.samples}"

    def places(self, catalog: Catalog) -> int:
        """See `Sampling`."""
        if self.weights.count != catalog.records:
            raise ConfigError(
                f"weights must be given for each of {catalog.records:,} records of the dataset, got {self.weights.count:,}"
            )
        return self.samples

    def order(self, catalog: Catalog, shuffle: Shuffle, seed: int, epoch: int) -> Order:
        """See `Sampling`."""
        self.places(catalog)
        key = hashlib.sha256(f"emlio.weights/1/{seed}/{epoch}/{self.samples}".encode()).digest()
        start = int.from_bytes(key, "little") % self.weights.total
        draws = _Draws(self.weights, self.samples, start)
        counts = np.diff(draws.first(self.weights.before(catalog.bases)))
        return _WeightedOrder(draws, make_order(count_by_shard(catalog, counts, "the weights"), shuffle, seed, epoch))

    def is_fixed(self, shuffle: Shuffle) -> bool:
        """See `Sampling`."""
        return False


class _Draws:
    """The draws of an epoch, numbered in the order of the dataset."""

    __slots__ = ("_rest", "_samples", "_start", "_step", "_weights")

    def __init__(self, weights: RecordWeights, samples: int, start: int) -> None:
        self._weights = weights
        self._samples = samples
        self._start = start
        self._step, self._rest = divmod(weights.total, samples)

    def ids(self, draws: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the record of each draw."""
        return self._weights.at(self._points(draws))

    def times(self, draws: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return which time of its record each draw is, counted from 0."""
        return draws - self.first(self._weights.before(self.ids(draws)))

    def first(self, points: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the first draw at or behind each point of the line."""
        low, high = np.zeros(points.size, np.int64), np.full(points.size, self._samples, np.int64)
        while bool((low < high).any()):
            middle = (low + high) >> 1
            behind = self._points(np.minimum(middle, self._samples - 1)) >= points
            high = np.where(behind & (low < high), middle, high)
            low = np.where(~behind & (low < high), middle + 1, low)
        return low

    def _points(self, draws: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return (draw * total + start) // samples, in parts that fit 64 bits."""
        points: npt.NDArray[np.int64] = draws * self._step + (draws * self._rest + self._start) // self._samples
        return points


class _WeightedOrder:
    """An order of draws."""

    __slots__ = ("_draws", "_order")

    def __init__(self, draws: _Draws, order: Order) -> None:
        self._draws = draws
        self._order = order

    def ids(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._draws.ids(self._order.ids(places))

    def times(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._draws.times(self._order.ids(places))
