"""A random rank for each record among the records of its run, never stored.

A run is up to 256 neighbouring records of a shard. Its records are ranked by a permutation that depends on a seed, the shard
and the number of the run. A permutation of the next power of two serves all lengths: a rank outside the run passes through
it again until it falls inside, fewer than two times on average.

Covers: the rank of each record and the record of each rank, for many runs at once. Does not cover: which ranks belong to a
subset (fraction.py).
"""

import hashlib
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.planner.permutation import Permutation

__all__ = ["RUN", "RunRanks"]

RUN: Final = 256
"""Records of a run. A subset is even over a shard to within a run; its records in file order need the ranks of whole runs."""

_POWERS: Final = RUN.bit_length()


class RunRanks:
    """The ranks of one seed. Immutable, so threads may share it."""

    __slots__ = ("_permutations",)

    def __init__(self, seed: int) -> None:
        self._permutations = tuple(
            Permutation(1 << power, hashlib.sha256(f"emlio.subset/1/{seed}/{power}".encode()).digest())
            for power in range(_POWERS)
        )

    def ranks(
        self, offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], tweaks: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the rank of each record.

        Args:
            offsets: the record's number in its run.
            sizes: the records of its run, in [1, RUN].
            tweaks: a number for each run.
        """
        return self._walk(offsets, sizes, tweaks, inverse=False)

    def offsets(
        self, ranks: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], tweaks: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the number in its run of the record with each rank."""
        return self._walk(ranks, sizes, tweaks, inverse=True)

    def _walk(
        self,
        values: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        tweaks: npt.NDArray[np.int64],
        *,
        inverse: bool,
    ) -> npt.NDArray[np.int64]:
        result = np.empty_like(values)
        powers = np.frexp((sizes - 1).astype(np.float64))[1]
        for power, permutation in enumerate(self._permutations):
            left = np.flatnonzero(powers == power)
            step = permutation.inverse if inverse else permutation.forward
            inside = values[left]
            while left.size:
                inside = step(inside, tweaks[left])
                result[left] = inside
                outside = inside >= sizes[left]
                left, inside = left[outside], inside[outside]
        return result
