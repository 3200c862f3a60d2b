"""The records of one dataset, pass after pass, each pass in an order of its own.

Covers: the record of a draw by its number over all passes. Does not cover: the shuffle modes (order.py).
"""

import hashlib
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.planner.mixture.merged import Part
from emlio.planner.order import Order, Shuffle, ShuffleMode, make_order
from emlio.planner.permutation import Permutation

__all__ = ["Passes"]

_ORDERS_KEPT: Final = 4
_PASSES: Final = 2**62


class Passes:
    """The draws from one dataset. Immutable but for what is computed again when it is missing: threads may share it."""

    __slots__ = ("_kept", "_part", "_permutation", "_seed", "_shuffle")

    def __init__(self, part: Part, shuffle: Shuffle, seed: int, number: int) -> None:
        """Prepare the draws.

        Args:
            part: the dataset's part of the catalog.
            shuffle: how far its records move within a pass.
            seed: of the plan.
            number: of the dataset. Datasets of the same size are in different orders.
        """
        key = hashlib.sha256(f"emlio.mixture/1/{seed}/dataset/{number}".encode()).digest()
        self._part = part
        self._shuffle = shuffle
        self._seed = int.from_bytes(key[:8], "little") >> 1
        self._kept: dict[int, Order] = {}
        # All passes in one call: a small dataset goes through many in one batch. Records that fit one window are in any
        # order, too.
        window = shuffle.block_records * shuffle.window_blocks if shuffle.mode is ShuffleMode.BLOCK else 0
        fits = shuffle.mode is ShuffleMode.GLOBAL or part.records <= window
        self._permutation = Permutation(part.records, key) if fits else None

    @property
    def records(self) -> int:
        """The number of records of a pass."""
        return self._part.records

    def ids(self, before: int, draws: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the records of some draws, as ids of the merged catalog.

        Args:
            before: the number of draws, over all passes, that `draws` are counted from; of any size.
            draws: from 0 to below 2**41.
        """
        done, rest = divmod(before, self.records)
        passes, places = np.divmod(draws + rest, self.records)
        if self._shuffle.mode is ShuffleMode.NONE:
            return places + self._part.first
        if self._permutation is not None:
            passes += done % _PASSES
            return self._permutation.forward(places, passes) + self._part.first
        found = np.empty_like(places)
        for number in np.unique(passes).tolist():
            here = passes == number
            found[here] = self._order(done + number).ids(places[here])
        return found + self._part.first

    def times(self, before: int, draws: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the pass of each draw, counted from that of draw `before`."""
        return (draws + before % self.records) // self.records

    def _order(self, number: int) -> Order:
        order = self._kept.get(number)
        if order is None:
            order = make_order(self._part, self._shuffle, self._seed, number)
            if len(self._kept) >= _ORDERS_KEPT:
                self._kept.clear()
            self._kept[number] = order
        return order
