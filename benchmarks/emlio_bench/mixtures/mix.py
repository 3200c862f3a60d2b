"""The mixtures that `emlio-bench mixtures` reads: three datasets with weights, and their sizes.

All datasets of a mixture are consecutive parts of one corpus. So a record's id says its dataset.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio_bench.harness.results import Run
from emlio_bench.race.records.order import Epoch

__all__ = [
    "AGAIN",
    "BATCH",
    "DISTINCT",
    "EARLY",
    "EPOCH",
    "MIX_NAMES",
    "ONCE",
    "STEP",
    "WEIGHTS",
    "WINDOW",
    "Mix",
    "early_repeats",
    "mix_of",
    "values_of_mix",
    "wrong_mix",
]

WEIGHTS: Final = (0.6, 0.3, 0.1)

ONCE: Final = "each record once"
AGAIN: Final = "the first dataset again"
MIX_NAMES: Final = {"once": ONCE, "again": AGAIN}
"""The mixtures by their names on the command line."""

STEP: Final = 30
"""The number of records must be a multiple of it: both mixtures then divide it without a remainder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """A mixture of datasets.

    Attributes:
        name: short stable name, the contest's.
        weights: weight of each dataset; their sum is 1.
        sizes: number of records of each dataset.
    """

    name: str
    weights: tuple[float, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.weights) != len(self.sizes) or min(self.sizes, default=0) < 1 or abs(sum(self.weights) - 1) > 1e-9:
            raise ConfigError(
                f"a mixture must have a record in each dataset and weights with the sum 1, got sizes {self.sizes} and "
                f"weights {self.weights}"
            )

    @property
    def samples(self) -> int:
        """Number of samples of an epoch: as many as there are records in all datasets."""
        return sum(self.sizes)

    @property
    def draws(self) -> tuple[int, ...]:
        """Number of samples of an epoch that are of each dataset, by its weight."""
        return tuple(round(weight * self.samples) for weight in self.weights)

    @property
    def borders(self) -> tuple[int, ...]:
        """First id of each dataset, and the id after the last one."""
        return (0, *accumulate(self.sizes))

    @property
    def ids(self) -> tuple[range, ...]:
        """Ids of each dataset."""
        return tuple(range(first, end) for first, end in pairwise(self.borders))

    def sources(self, ids: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return the number of the dataset of each id.

        Raises:
            ConfigError: an id is of no dataset.
        """
        found = np.asarray(ids, np.int64)
        wrong = found[(found < 0) | (found >= self.samples)]
        if wrong.size:
            raise ConfigError(f"{self.name}: ids must be in [0, {self.samples}), got {int(wrong[0])}")
        return np.searchsorted(self.borders, found, side="right").astype(np.int64) - 1


def mix_of(name: str, records: int) -> Mix:
    """Return a mixture of datasets with so many records in all.

    Args:
        name: `ONCE`, where sizes are in the proportions of the weights, or `AGAIN`, where all are equal: the first dataset
            is then read 1.8 times in an epoch.
        records: a multiple of `STEP`.
    """
    if records < 1 or records % STEP:
        raise ConfigError(f"the records of a mixture must be a multiple of {STEP}, got {records}")
    if name not in MIX_NAMES.values():
        raise ConfigError(f"a mixture must be one of {', '.join(MIX_NAMES.values())}, got {name!r}")
    shares = tuple(round(weight * records) for weight in WEIGHTS)
    sizes = shares if name == ONCE else (records // len(WEIGHTS),) * len(WEIGHTS)
    return Mix(name=name, weights=WEIGHTS, sizes=sizes)


WINDOW: Final = "largest deviation in a window"
BATCH: Final = "largest deviation in a whole batch"
DISTINCT: Final = "distinct records"
EARLY: Final = "came too early"
EPOCH: Final = "largest deviation in the epoch"


def values_of_mix(epoch: Epoch, mix: Mix, batch: int, window: int) -> dict[str, float]:
    """Return the values of an epoch's samples."""
    sources = mix.sources(epoch.ids)
    weights = np.asarray(mix.weights)
    ones = sources[:, None] == np.arange(len(weights))
    counts = np.concatenate([np.zeros((1, len(weights))), np.cumsum(ones, axis=0, dtype=np.float64)])
    found = {
        DISTINCT: float(len(set(epoch.ids))),
        EARLY: float(early_repeats(epoch.ids, mix)),
        EPOCH: _largest(counts[-1] - np.asarray(mix.draws)),
    }
    if len(counts) > window:
        found[WINDOW] = _largest(counts[window:] - counts[:-window] - window * weights)
    ends = np.asarray((0, *accumulate(epoch.batch_records)))
    whole = np.asarray(epoch.batch_records, np.int64) == batch
    if whole.any():
        found[BATCH] = _largest((counts[ends[1:]] - counts[ends[:-1]])[whole] - batch * weights)
    return found


def wrong_mix(run: Run, mix: Mix) -> str:
    """Return what is wrong with a run of a loader that keeps proportions exactly; "" for nothing."""
    distinct = sum(min(size, draw) for size, draw in zip(mix.sizes, mix.draws, strict=True))
    kept = {EPOCH: 0, EARLY: 0, DISTINCT: distinct}
    return "; ".join(
        f"{name} {run.value(name):g}, not {of}"
        for name, of in kept.items()
        if name in run.values and run.value(name) != of
    )


def _largest(deviations: npt.NDArray[np.float64]) -> float:
    return float(np.abs(deviations).max())


def early_repeats(ids: Sequence[int], mix: Mix) -> int:
    """Return how many records came again before all records of their dataset had come."""
    sources: list[int] = mix.sources(ids).tolist()
    passes = [set[int]() for _ in mix.sizes]
    early = 0
    for one, source in zip(ids, sources, strict=True):
        come = passes[source]
        if one in come:
            early += 1
            continue
        come.add(one)
        if len(come) == mix.sizes[source]:
            come.clear()
    return early
