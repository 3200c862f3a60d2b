"""The division of a row of places among datasets, in exact proportions.

Places are divided in two again and again: a binary tree has the datasets as its leaves, and each node gives its left branch
the places at which the rounded share of that branch grows. So the number of places that a dataset has among the first p is
known without looking at any of them, and is off by less than two from its exact share, for any p and any number of datasets.

Covers: counts before a place, the dataset at each place, the largest deviation. All in integers, in constant memory. Does not
cover: where weights come from (given.py), mixing the order of neighbouring places (mixed_order.py).
"""

import heapq
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError

__all__ = ["MOST_WEIGHT", "Shares"]

MOST_WEIGHT: Final = 2**31
"""The largest sum of weights: the product of a weight and a place below the sum then fits 64 bits."""


class _Node(msgspec.Struct, frozen=True):
    """A division of places between two branches, each a node or the number of a dataset.

    Attributes:
        whole: the sum of the weights below.
        part: of them, those of the left branch.
    """

    whole: int
    part: int
    left: "_Node | int"
    right: "_Node | int"

    def given(self, places: int) -> int:
        """Return how many of the first places are the left branch's: its share, rounded to the nearest number."""
        return (places * self.part + self.whole // 2) // self.whole

    def divide(self, base: int, more: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return how many of the places from `base` up to before `base + more` are the left branch's, and whether that one is."""
        rest = base % self.whole
        periods, within = np.divmod(more + rest, self.whole)
        within *= self.part
        within += self.whole // 2
        given, left_over = np.divmod(within, self.whole)
        periods *= self.part
        given += periods
        given -= self.given(rest)
        return given, left_over >= self.whole - self.part


@dataclass(frozen=True, slots=True)
class Shares:
    """The division of places among datasets by their weights. Immutable, so threads may share it.

    Attributes:
        weights: whole numbers >= 0, one for each dataset, not all 0.
    """

    weights: tuple[int, ...]
    _root: "_Node | int" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        total = sum(self.weights)
        if min(self.weights, default=-1) < 0 or not 1 <= total <= MOST_WEIGHT:
            raise ConfigError(f"weights must be >= 0 and sum to between 1 and {MOST_WEIGHT}, got {self.weights}")
        # Huffman's tree: large shares are near the root, and no path has two large shares in a row, which bounds the
        # deviation. Equal sums are taken in the order in which they were made.
        heap: list[tuple[int, int, _Node | int]] = [
            (weight, number, number) for number, weight in enumerate(self.weights) if weight
        ]
        heapq.heapify(heap)
        made = len(self.weights)
        while len(heap) > 1:
            part, _, left = heapq.heappop(heap)
            more, _, right = heapq.heappop(heap)
            node = _Node(whole=part + more, part=part, left=left, right=right)
            heapq.heappush(heap, (node.whole, made, node))
            made += 1
        object.__setattr__(self, "_root", heap[0][2])

    @property
    def total(self) -> int:
        """The sum of the weights: after so many places all counts are exact."""
        return sum(self.weights)

    def counts(self, places: int) -> tuple[int, ...]:
        """Return how many of the first places each dataset has."""
        found = [0] * len(self.weights)
        open_: list[tuple[_Node | int, int]] = [(self._root, places)]
        while open_:
            node, count = open_.pop()
            if isinstance(node, int):
                found[node] = count
                continue
            given = node.given(count)
            open_ += [(node.left, given), (node.right, count - given)]
        return tuple(found)

    def divide(
        self, base: int, places: npt.NDArray[np.int64]
    ) -> list[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Divide places, each counted from `base`.

        Args:
            base: the place that `places` are counted from; of any size.
            places: places from 0 to below 2**41.

        Returns:
            For each dataset that has some of them: its number, the indexes of its places, and the number of its places from
            `base` up to before each of them.
        """
        found: list[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        begin = np.arange(places.size, dtype=np.int64)
        open_: list[tuple[_Node | int, int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]
        open_ = [(self._root, base, begin, places)]
        while open_:
            node, before, indexes, count = open_.pop()
            if isinstance(node, int):
                found.append((node, indexes, count))
                continue
            given, is_left = node.divide(before, count)
            left, right = np.flatnonzero(is_left), np.flatnonzero(~is_left)
            first = node.given(before)
            if left.size:
                open_.append((node.left, first, indexes[left], given[left]))
            if right.size:
                open_.append((node.right, before - first, indexes[right], count[right] - given[right]))
        return sorted(found, key=lambda item: item[0])

    def deviations(self) -> tuple[Fraction, ...]:
        """Return for each dataset how far `counts` can be from its exact share, at most. Each is below 2."""
        found = [Fraction(0)] * len(self.weights)
        open_: list[tuple[_Node | int, Fraction]] = [(self._root, Fraction(0))]
        while open_:
            node, deviation = open_.pop()
            if isinstance(node, int):
                found[node] = deviation
                continue
            half, share = Fraction(1, 2), Fraction(node.part, node.whole)
            open_ += [(node.left, half + share * deviation), (node.right, half + (1 - share) * deviation)]
        return tuple(found)
