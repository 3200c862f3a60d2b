"""The order of one epoch of a mixture.

Places are divided among the datasets in exact proportions (shares.py). Within each block of 16 places, the order in which the
datasets take turns is permuted by the seed, which changes no block's counts. The n-th place of a dataset, counted over all
epochs, gets the n-th draw from it (passes.py). So an epoch begins where the one before it ended, and a record does not come
again before its dataset is through.

Covers: the record at each place of an epoch. Does not cover: the length of an epoch, the weights at each place (sampling.py).
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.draws import draw
from emlio.planner.mixture.passes import Passes
from emlio.planner.mixture.shares import Shares

__all__ = ["BLOCK", "MixedOrder", "Stretch"]

BLOCK: Final = 16
"""Places within which the datasets' turns are permuted. It is small, as it bounds how far the counts of a run of samples can be
from exact ones."""

_AFTER_ALL: Final = np.uint64(2**64 - 1)


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Places of an epoch with the same weights.

    Attributes:
        first: the first place in the epoch.
        end: the place after the last.
        shares: the weights.
        since: the places with these weights before, in earlier epochs.
        drawn: for each dataset, what was drawn from it before these weights began.
    """

    first: int
    end: int
    shares: Shares
    since: int
    drawn: tuple[int, ...]


class MixedOrder:
    """The order of one epoch. Immutable: threads may share it."""

    __slots__ = ("_firsts", "_passes", "_stretches", "_turns")

    def __init__(self, stretches: Sequence[Stretch], passes: Sequence[Passes], turns: str | None) -> None:
        """Prepare the order.

        Args:
            stretches: the epoch's places.
            passes: the draws from each dataset.
            turns: names the random numbers by which turns within a block are permuted; None to take them evenly.
        """
        self._stretches = tuple(stretches)
        self._firsts = np.array([stretch.first for stretch in stretches], np.int64)
        self._passes = tuple(passes)
        self._turns = turns

    def ids(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """See `Order`."""
        found = np.empty_like(places)
        for number, before, indexes, draws in self._draws(places):
            found[indexes] = self._passes[number].ids(before, draws)
        return found

    def times(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how often each place's dataset was begun anew in the epoch: another number for each time of a record."""
        found = np.empty_like(places)
        begin = self._begin()
        for number, before, indexes, draws in self._draws(places):
            since = begin[number]
            found[indexes] = self._passes[number].times(since, draws + (before - since))
        return found

    def datasets(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of the dataset at each place."""
        found = np.empty_like(places)
        for number, _, indexes, _ in self._draws(places):
            found[indexes] = number
        return found

    def _begin(self) -> tuple[int, ...]:
        """Return what was drawn from each dataset before the epoch."""
        first = self._stretches[0]
        return tuple(a + b for a, b in zip(first.drawn, first.shares.counts(first.since), strict=True))

    def _draws(
        self, places: npt.NDArray[np.int64]
    ) -> list[tuple[int, int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Return dataset, draws before, indexes and further draws, for each dataset and stretch."""
        found: list[tuple[int, int, npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        if not places.size:
            return found
        which = np.searchsorted(self._firsts, places, side="right") - 1 if len(self._stretches) > 1 else None
        for at in [0] if which is None else np.unique(which).tolist():
            stretch = self._stretches[at]
            here = None if which is None else np.flatnonzero(which == at)
            chosen = (places if here is None else places[here]) - stretch.first
            counts = stretch.shares.counts(stretch.since)
            for number, indexes, draws in self._divided(stretch, chosen):
                before = stretch.drawn[number] + counts[number]
                found.append((number, before, indexes if here is None else here[indexes], draws))
        return found

    def _divided(
        self, stretch: Stretch, places: npt.NDArray[np.int64]
    ) -> list[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Divide places of a stretch; see `Shares.divide`."""
        if self._turns is None:
            return stretch.shares.divide(stretch.since, places)
        blocks, cells = _blocks_of(places)
        # The order of random numbers is a random order. A stable sort is the same with every release of NumPy.
        drawn = draw(f"{self._turns}/{stretch.first}", 0, blocks.ravel()).reshape(blocks.shape)
        drawn >>= np.uint64(1)
        drawn[blocks >= stretch.end - stretch.first] = _AFTER_ALL
        turns = (np.argsort(drawn, axis=1, kind="stable") + blocks[:, :1]).ravel()
        dataset, number_of = np.empty_like(turns), np.empty_like(turns)
        for number, indexes, draws in stretch.shares.divide(stretch.since, turns):
            # The dataset's draws go to its places in rising order: none of the next pass before the last one of this pass.
            draws.sort()
            dataset[indexes], number_of[indexes] = number, draws
        chosen = dataset[cells]
        found: list[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        for number, weight in enumerate(stretch.shares.weights):
            indexes = np.flatnonzero(chosen == number) if weight else cells[:0]
            if indexes.size:
                found.append((number, indexes, number_of[cells[indexes]]))
        return found


def _blocks_of(places: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return all places of the blocks that hold these, a row for each block, and the index of each place among them."""
    blocks = places // BLOCK
    first, last = int(blocks.min()), int(blocks.max())
    if (last - first) * BLOCK <= 2 * places.size:
        touched, rows = np.arange(first, last + 1, dtype=np.int64), blocks - first
    else:
        touched, rows = np.unique(blocks, return_inverse=True)
    cells = touched[:, np.newaxis] * BLOCK + np.arange(BLOCK, dtype=np.int64)
    return cells, rows * BLOCK + (places - blocks * BLOCK)
