"""Epochs that mix several datasets: which weights hold at each sample, and how long an epoch is.

Covers: the value in a plan, its text, lengths of epochs, weights that change at given samples, counts in a range of samples, the
promise about them. Does not cover: which shards are of which dataset (merged.py), the order within an epoch (mixed_order.py).
"""

import hashlib
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Final, Self

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog
from emlio.planner.mixture.merged import parts_of
from emlio.planner.mixture.mixed_order import BLOCK, MixedOrder, Stretch
from emlio.planner.mixture.passes import Passes
from emlio.planner.mixture.shares import Shares
from emlio.planner.order import Shuffle, ShuffleMode
from emlio.planner.permutation import LARGEST
from emlio.wire.limits import MAX_DATASETS

__all__ = ["FIRST", "LONGEST", "MIXTURE", "MixtureSampling"]

MIXTURE: Final = "mixture/"
"""The beginning of the text of each mixture."""

FIRST: Final = "first"
LONGEST: Final = "longest"

_VERSION: Final = "1"
"""Raised whenever the same weights give other draws."""

_MOST_CHANGES: Final = 256
_MOST_SAMPLES: Final = 2**62
_TEXT = re.compile(r"mixture/([0-9]+)/(first|longest|[0-9]{1,13})((?:/[0-9]{1,19}:[0-9]{1,10}(?:,[0-9]{1,10})*)+)")
_LONGEST_MARK: Final = 160


@dataclass(frozen=True, slots=True)
class MixtureSampling:
    """A mixture of datasets. See `emlio.planner.sampling.Sampling`.

    Attributes:
        length: the number of samples of an epoch; "first": as long as no dataset must be begun again in the first epoch;
            "longest": until every dataset is through once.
        weights: the first sample, counted over all epochs and ranks from 0, and the weights from there on.
    """

    length: int | str
    weights: tuple[tuple[int, Shares], ...]
    _drawn: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        datasets = {len(shares.weights) for _, shares in self.weights}
        if len(datasets) != 1 or not 1 <= max(datasets) <= MAX_DATASETS:
            raise ConfigError(
                f"a mixture must have weights for the same 1 to {MAX_DATASETS} datasets at each sample, got weights for "
                f"{', '.join(map(str, sorted(datasets))) or 'none'}"
            )
        starts = [start for start, _ in self.weights]
        if starts[0] != 0 or any(after <= before for before, after in pairwise(starts)):
            raise ConfigError(f"the samples at which weights change must rise from 0, got {starts}")
        if starts[-1] >= _MOST_SAMPLES or len(starts) > _MOST_CHANGES + 1:
            raise ConfigError(
                f"weights may change at most {_MOST_CHANGES} times and before sample 2**62, got {len(starts) - 1} times, "
                f"the last at {starts[-1]}"
            )
        if isinstance(self.length, int) and not 1 <= self.length <= LARGEST:
            raise ConfigError(f"the samples of an epoch must be in [1, 2**40], got {self.length}")
        if isinstance(self.length, str) and self.length not in (FIRST, LONGEST):
            raise ConfigError(f"an epoch must last until {FIRST!r} or {LONGEST!r}, got {self.length!r}")

        drawn = [(0,) * self.datasets]
        for (start, shares), (end, _) in pairwise(self.weights):
            drawn.append(_sum(drawn[-1], shares.counts(end - start)))
        object.__setattr__(self, "_drawn", tuple(drawn))

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        changes = "".join(f"/{start}:{','.join(map(str, shares.weights))}" for start, shares in self.weights)
        return f"{MIXTURE}{_VERSION}/{self.length}{changes}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the mixture of a text.

        Raises:
            ConfigError: it is not the text of a mixture that this release knows.
        """
        match = _TEXT.fullmatch(text)
        if match is None or match[1] != _VERSION:
            raise ConfigError(f"a mixture must be one that this release knows, got {text[:80]!r}")
        changes: list[tuple[int, Shares]] = []
        for change in match[3][1:].split("/"):
            start, _, weights = change.partition(":")
            changes.append((int(start), Shares(tuple(map(int, weights.split(","))))))
        return cls(match[2] if match[2] in (FIRST, LONGEST) else int(match[2]), tuple(changes))

    @property
    def mark(self) -> str:
        """The text as a state keeps it; of a long one, a part of its hash."""
        text = str(self)
        return text if len(text) <= _LONGEST_MARK else f"{MIXTURE}#{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @staticmethod
    def words(mark: str) -> str:
        """Return a mark as a user knows it: the weights, and the length of an epoch."""
        try:
            known = MixtureSampling.parse(mark)
        except ConfigError:
            return f"a mixture with other weights or changes of weights ({mark.removeprefix(MIXTURE)})"
        weights = "; ".join(
            f"{_listed(shares.weights)}{f' from sample {start:,} on' if start else ''}"
            for start, shares in known.weights
        )
        length = f"until={known.length!r}" if isinstance(known.length, str) else f"samples={known.length}"
        return f"a mixture with weights {weights} and {length}"

    @property
    def datasets(self) -> int:
        """The number of datasets."""
        return len(self.weights[0][1].weights)

    # ---- the plan ---------------------------------------------------------------------------------------------------

    def places(self, catalog: Catalog) -> int:
        """See `Sampling`."""
        return _length(self, tuple(part.records for part in parts_of(catalog, self.datasets)))

    def order(self, catalog: Catalog, shuffle: Shuffle, seed: int, epoch: int) -> MixedOrder:
        """See `Sampling`."""
        parts = parts_of(catalog, self.datasets)
        length = _length(self, tuple(part.records for part in parts))
        turns = None if shuffle.mode is ShuffleMode.NONE else f"mixture/{_VERSION}/{seed}/{epoch}"
        passes = [Passes(part, shuffle, seed, number) for number, part in enumerate(parts)]
        return MixedOrder(self._stretches(epoch * length, length), passes, turns)

    def is_fixed(self, shuffle: Shuffle) -> bool:
        """See `Sampling`."""
        return False  # weights may change, and an epoch goes on where the one before ended in each dataset

    def counts(self, samples: int) -> tuple[int, ...]:
        """Return how many of the first samples are of each dataset, counted over all epochs.

        It is exact at the end of an epoch, where weights change, and after each block of 16 samples of an epoch.
        """
        at = bisect_right(self.weights, samples, key=lambda change: change[0]) - 1
        start, shares = self.weights[at]
        return _sum(self._drawn[at], shares.counts(samples - start))

    def most_deviation(self) -> tuple[Fraction, ...]:
        """Return how far each dataset's count in any run of samples can be from its exact share.

        It holds for any number of samples in a row that lie in one epoch and have the same weights. See docs/guide/mixtures.md.
        """
        found = [Fraction(0)] * self.datasets
        for _, shares in self.weights:
            for number, (weight, deviation) in enumerate(zip(shares.weights, shares.deviations(), strict=True)):
                share = Fraction(weight, shares.total)
                found[number] = max(found[number], 2 * BLOCK * share * (1 - share) + 6 * deviation)
        return tuple(found)

    def _stretches(self, begin: int, length: int) -> list[Stretch]:
        """Return the stretches of the epoch that begins at this sample."""
        found: list[Stretch] = []
        for at, (start, shares) in enumerate(self.weights):
            end = self.weights[at + 1][0] if at + 1 < len(self.weights) else begin + length
            first, last = max(start, begin), min(end, begin + length)
            if first < last:
                drawn, since = self._drawn[at], first - start
                found.append(Stretch(first=first - begin, end=last - begin, shares=shares, since=since, drawn=drawn))
        return found


@lru_cache(maxsize=64)
def _length(mixture: MixtureSampling, records: tuple[int, ...]) -> int:
    """Return the number of samples of an epoch of datasets with so many records."""
    if isinstance(mixture.length, int):
        return mixture.length
    if mixture.length == FIRST:
        length = _first(lambda samples: _over(mixture.counts(samples), records)) - 1
    else:
        settled = mixture.counts(mixture.weights[-1][0])
        last = zip(mixture.weights[-1][1].weights, settled, records, strict=True)
        never = [number for number, (weight, drawn, size) in enumerate(last) if not weight and drawn < size]
        if never:
            raise ConfigError(
                f'until="longest" needs a weight above 0 for each dataset until it is through, number {never[0]} of the mixture '
                "has none in the end: give samples="
            )
        length = _first(lambda samples: not _over(records, mixture.counts(samples)))
    if not 1 <= length <= LARGEST:
        raise ConfigError(
            f"the samples of an epoch must be in [1, 2**40], until={mixture.length!r} gives more: give samples="
        )
    return length


def _first(holds: Callable[[int], bool]) -> int:
    """Return the first number from 1 on for which a condition holds that goes on to hold; one above 2**40 if it is not below."""
    low, high = 0, 2 * LARGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _over(counts: Sequence[int], bounds: Sequence[int]) -> bool:
    return any(count > bound for count, bound in zip(counts, bounds, strict=True))


def _sum(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _listed(weights: Sequence[int]) -> str:
    """Return weights as parts of 1, as far as that is short."""
    total = sum(weights)
    return ", ".join(f"{weight / total:.6g}" for weight in weights)
