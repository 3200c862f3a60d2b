"""A fraction of a dataset, drawn by a seed, of which nothing is stored.

Of a shard with m records, the part from 0 to x has floor(x * m + u) records, where u in [0, 1) is drawn for the shard. So a
fraction has its exact share of each shard to within one record. The same formula, applied to the records before and after a
run, says how many of the run's records lie below x. Those with the lowest ranks do.

Whether a record belongs to a fraction depends only on the seed, the shard's name, the record's number in it and, in the last
run, the length of the shard. Fractions of one seed that do not overlap therefore have no record in common, and added shards
change nothing.

Covers: the fraction, splitting a dataset, membership, the k-th chosen record. Does not cover: the order of records (choice.py).
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, SupportsFloat

import numpy as np
import numpy.typing as npt

from emlio.arguments import as_whole, suggests_arguments
from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog
from emlio.planner.choice.selection import count_by_shard
from emlio.planner.permutation import Permutation

__all__ = ["RUN", "Fraction", "RunRanks", "train_test_split"]

_UNITS: Final = 10**9
"""Bounds are whole billionths, so that two fractions that meet have exactly the same bound."""

_RUNS_AT_ONCE: Final = 64
"""16,384 ranks at a time: arrays that stay in the second-level cache."""

_LOW_BITS: Final = 20
_TWEAK_BITS: Final = np.uint64(2**62 - 1)


RUN: Final = 256
"""Records of a run. A subset is even over a shard to within a run; its records in file order need the ranks of whole runs."""

_POWERS: Final = RUN.bit_length()


class RunRanks:
    """The ranks of one seed. Immutable, so threads may share it.

    A run is up to 256 neighbouring records of a shard. Its records are ranked by a permutation that depends on a seed, the
    shard and the number of the run. A permutation of the next power of two serves all lengths: a rank outside the run passes
    through it again until it falls inside, fewer than two times on average.
    """

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


@dataclass(frozen=True, slots=True)
class Fraction:
    """The records between two bounds, in an order that the seed draws anew within each run of 256 records.

    Of the same seed, `Fraction(0, 0.9)` and `Fraction(0.9, 1)` have no record in common and are together the whole dataset.
    Each has its share of every shard, to within one record.

    Attributes:
        begin: the lower bound, in [0, 1), rounded to billionths.
        end: the upper bound, in (begin, 1].
        seed: another seed chooses other records. It is independent of the loader's seed.
    """

    begin: float = 0.0
    end: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("begin", "end"):
            object.__setattr__(self, name, _billionths(name, getattr(self, name)) / _UNITS)
        if not self.begin < self.end:
            raise ConfigError(
                f"the end of a fraction must be at least a billionth above its begin, got {self.begin} to {self.end}"
            )
        seed = as_whole(self.seed)
        if seed is None or not 0 <= seed < 2**63:
            raise ConfigError(f"the seed of a fraction must be a whole number in [0, 2**63), got {self.seed!r}")
        object.__setattr__(self, "seed", seed)

    def __str__(self) -> str:
        """Return "fraction=BEGIN:END:SEED" in billionths."""
        low, high = self.bounds
        return f"fraction={low}:{high}:{self.seed}"

    @property
    def bounds(self) -> tuple[int, int]:
        """The bounds in billionths."""
        return round(self.begin * _UNITS), round(self.end * _UNITS)

    def select(self, catalog: Catalog) -> "SelectedFraction":
        """Return the records of this fraction."""
        return SelectedFraction(catalog, self)


@suggests_arguments
def train_test_split(test: "float | Iterable[float]", *, seed: int = 0) -> tuple[Fraction, ...]:
    """Split a dataset by a seed into parts that have no record in common, as values for `subset=`.

        train, test = emlio.train_test_split(0.1, seed=7)
        train, validation, test = emlio.train_test_split([0.8, 0.1, 0.1], seed=7)

    Args:
        test: the fraction of the second of two parts, or the fractions of all parts, which must add up to 1.
        seed: another seed makes another split.
    """
    if isinstance(test, str | bytes) or not isinstance(test, SupportsFloat | Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  # from a user
        raise ConfigError(f"test must be a fraction such as 0.1, or a list of fractions that add up to 1, got {test!r}")
    sizes = [1 - test, test] if isinstance(test, int | float) else list(test)
    if not sizes or any(not isinstance(size, int | float) or not 0 < size <= 1 for size in sizes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"the parts of a split must be fractions above 0 and at most 1, got {test!r}")
    ends = [math.fsum(sizes[: number + 1]) for number in range(len(sizes))]
    if abs(ends[-1] - 1) > 0.5 / _UNITS:
        raise ConfigError(f"the parts of a split must add up to 1, got {sizes}, which add up to {ends[-1]:.9g}")
    ends[-1] = 1.0
    return tuple(Fraction(begin, end, seed=seed) for begin, end in zip([0.0, *ends], ends, strict=False))


def _billionths(name: str, value: object) -> int:
    """Return a bound in billionths."""
    if isinstance(value, bool) or not isinstance(value, SupportsFloat):
        raise ConfigError(f"the {name} of a fraction must be a number in [0, 1], got {value!r}")
    number = float(value)
    if not 0 <= number <= 1:
        raise ConfigError(f"the {name} of a fraction must be a number in [0, 1], got {value!r}")
    return round(number * _UNITS)


def _below(bound: int, records: npt.NDArray[np.int64], shifts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how many of the first so many records of a shard lie below a bound: floor(bound * records + shift).

    The product of a billion and 2**40 records does not fit 64 bits, so the records are divided in two parts.
    """
    high, low = records >> _LOW_BITS, records & ((1 << _LOW_BITS) - 1)
    whole, rest = np.divmod(high * bound, _UNITS)
    counted: npt.NDArray[np.int64] = (whole << _LOW_BITS) + ((rest << _LOW_BITS) + low * bound + shifts) // _UNITS
    return counted


class SelectedFraction:
    """The records of a fraction in one catalog: 24 bytes for each shard, and nothing for each record."""

    __slots__ = ("_begin", "_catalog", "_end", "_ranks", "_shifts", "_tweaks", "within")

    def __init__(self, catalog: Catalog, fraction: Fraction) -> None:
        self._catalog = catalog
        self._begin, self._end = fraction.bounds
        self._ranks = RunRanks(fraction.seed)
        prefix = f"emlio.subset/1/{fraction.seed}/".encode()
        drawn = b"".join(
            hashlib.blake2b(prefix + entry.name.encode(), digest_size=16).digest() for entry in catalog.shards
        )
        words = np.frombuffer(drawn, dtype="<u8").reshape(-1, 2).astype(np.uint64)
        self._shifts = (((words[:, 0] >> np.uint64(32)) * np.uint64(_UNITS)) >> np.uint64(32)).view(np.int64)
        self._tweaks = (words[:, 1] & _TWEAK_BITS).view(np.int64)
        self.within = count_by_shard(
            catalog,
            self._chosen(np.diff(catalog.bases), self._shifts),
            f"the fraction from {fraction.begin:.9g} to {fraction.end:.9g}",
        )

    def records(self, numbers: npt.NDArray[np.int64], *, in_order: bool) -> npt.NDArray[np.int64]:
        """See `Selected`."""
        shards, number = self.within.locate(numbers)
        sizes, shifts = np.diff(self._catalog.bases)[shards], self._shifts[shards]
        runs = self._runs(number, sizes, shifts)
        first = runs * RUN
        lengths = np.minimum(sizes - first, RUN)
        number = number - self._chosen(first, shifts)
        if in_order:
            offsets = self._in_order(shards, runs, lengths, number)
        else:
            low, _ = self._bounds(first, lengths, shifts)
            offsets = self._ranks.offsets(low + number, lengths, self._tweak(shards, runs))
        return self._catalog.bases[shards] + first + offsets

    def has(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """See `Selected`."""
        shards, records = self._catalog.locate(ids)
        runs = records // RUN
        first = runs * RUN
        lengths = np.minimum(np.diff(self._catalog.bases)[shards] - first, RUN)
        ranks = self._ranks.ranks(records - first, lengths, self._tweak(shards, runs))
        low, high = self._bounds(first, lengths, self._shifts[shards])
        return (low <= ranks) & (ranks < high)

    def _chosen(self, records: npt.NDArray[np.int64], shifts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many of the first so many records of a shard are chosen."""
        return _below(self._end, records, shifts) - _below(self._begin, records, shifts)

    def _bounds(
        self, first: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], shifts: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the lowest rank of each run that is chosen, and the one after the highest."""
        low, high = (
            _below(bound, first + lengths, shifts) - _below(bound, first, shifts) for bound in (self._begin, self._end)
        )
        return low, high

    def _tweak(self, shards: npt.NDArray[np.int64], runs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return (self._tweaks[shards] + runs) & np.int64(_TWEAK_BITS)

    def _runs(
        self, numbers: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], shifts: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the run of the shard that holds the chosen record with each number.

        The number of chosen records before a run is known to within one, so few runs are left to bisect.
        """
        width = RUN * (self._end - self._begin) / _UNITS
        low = np.maximum(np.floor((numbers - 1) / width).astype(np.int64) - 1, 0)
        high = np.minimum(np.ceil((numbers + 2) / width).astype(np.int64) + 1, -(-sizes // RUN))
        while True:
            middle = (low + high) >> 1
            if bool((middle == low).all()):
                return low
            # The last run ends with the shard; no middle is its end.
            before = self._chosen(middle * RUN, shifts) <= numbers
            low = np.where(before, middle, low)
            high = np.where(before, high, middle)

    def _in_order(
        self,
        shards: npt.NDArray[np.int64],
        runs: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        numbers: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int64]:
        """Return the offset of the chosen record with each number in its run, the lowest offset first."""
        first_ids = self._catalog.bases[shards] + runs * RUN
        distinct, at, where = np.unique(first_ids, return_index=True, return_inverse=True)
        chosen, count = np.empty(numbers.size, np.int64), distinct.size
        # Each distinct run is ranked whole, some of them at a time, so that the arrays stay small.
        for begin in range(0, count, _RUNS_AT_ONCE):
            few = at[begin : begin + _RUNS_AT_ONCE]
            shard, run, length = shards[few], runs[few], lengths[few]
            rows = np.repeat(np.arange(few.size), length)
            offsets = np.arange(rows.size) - np.repeat(np.cumsum(length) - length, length)
            ranks = self._ranks.ranks(offsets, length[rows], self._tweak(shard[rows], run[rows]))
            low, high = self._bounds(run * RUN, length, self._shifts[shard])
            members = (low[rows] <= ranks) & (ranks < high[rows])
            found = offsets[members]
            starts = np.cumsum(high - low) - (high - low)
            here = (begin <= where) & (where < begin + few.size)
            chosen[here] = found[starts[where[here] - begin] + numbers[here]]
        return chosen
