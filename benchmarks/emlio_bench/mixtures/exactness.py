"""The exactness of a mixture, counted from the ids that a loader handed out, in their order.

A deviation is a number of records: those of a dataset in a window of samples in a row, or in a batch, minus its weight times the
samples there.

Covers: counts in windows and in batches, records that came again before their dataset was through, the form in which results
keep an epoch. Pure. Does not cover: mixtures (emlio_bench.mixtures.mix), reading, tables.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Self

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio_bench.harness.results import Turn
from emlio_bench.mixtures.mix import Mix

__all__ = ["Deviations", "Drawn", "Draws", "batch_deviations", "early_repeats", "window_deviations"]

Deviations = npt.NDArray[np.float64]
"""A row for each window or batch, a column for each dataset: signed deviations in records."""

_NEXT_BATCH = "|"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws(Turn):
    """The draws of one epoch, as results keep them.

    Attributes:
        contest: name of the contest.
        packed: the number of the dataset of each sample, a digit each, in the order of handing out, with "|" between batches;
            compressed by zlib.
        early: number of records that came again before their dataset was through.
        distinct: number of distinct records of each dataset.
    """

    contest: str
    packed: bytes
    early: int
    distinct: tuple[int, ...]

    def drawn(self) -> "Drawn":
        """Return the sequence of samples."""
        return Drawn.read(zlib.decompress(self.packed).decode("ascii"))


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """The datasets of an epoch's samples, in the order of handing out.

    Attributes:
        sources: number of the dataset of each sample.
        lengths: number of samples of each batch.
    """

    sources: npt.NDArray[np.int64]
    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        if sum(self.lengths) != len(self.sources):
            raise ConfigError(
                f"batches must hold each sample once, got {len(self.sources)} samples and {sum(self.lengths)} in batches"
            )

    @classmethod
    def read(cls, text: str) -> Self:
        """Return what `str` wrote."""
        batches = text.split(_NEXT_BATCH) if text else []
        digits = np.frombuffer("".join(batches).encode("ascii"), np.uint8)
        return cls(digits.astype(np.int64) - ord("0"), tuple(map(len, batches)))

    def __str__(self) -> str:
        """Return a digit for each sample, with "|" between batches."""
        digits = "".join(map(str, self.sources.tolist()))
        borders = (0, *accumulate(self.lengths))
        return _NEXT_BATCH.join(digits[first:end] for first, end in pairwise(borders))

    def packed(self) -> bytes:
        """Return the form of `Draws.packed`."""
        return zlib.compress(str(self).encode("ascii"), 9)


def window_deviations(drawn: Drawn, weights: Sequence[float], window: int) -> Deviations:
    """Return the deviations in all windows of samples in a row, one beginning at each sample.

    There are none if there are fewer samples than in a window.
    """
    if window < 1:
        raise ConfigError(f"a window must have a sample, got {window}")
    counts = _counts_before(drawn, len(weights))
    if len(counts) <= window:
        return np.empty((0, len(weights)))
    found: Deviations = counts[window:] - counts[:-window] - window * np.asarray(weights)
    return found


def batch_deviations(drawn: Drawn, weights: Sequence[float], batch: int) -> Deviations:
    """Return the deviations in all whole batches. The last ones of an epoch may be shorter, and are not counted."""
    counts = _counts_before(drawn, len(weights))
    ends = np.asarray((0, *accumulate(drawn.lengths)))
    whole = np.asarray(drawn.lengths, np.int64) == batch
    found: Deviations = (counts[ends[1:]] - counts[ends[:-1]])[whole] - batch * np.asarray(weights)
    return found


def _counts_before(drawn: Drawn, datasets: int) -> Deviations:
    """Return how many of the first samples are of each dataset: a row for each number of samples from 0."""
    if drawn.sources.size and not 0 <= drawn.sources.min() <= drawn.sources.max() < datasets:
        raise ConfigError(f"each sample must be of a dataset in [0, {datasets}), got {drawn.sources.max()}")
    ones = drawn.sources[:, None] == np.arange(datasets)
    counts: Deviations = np.concatenate([np.zeros((1, datasets)), np.cumsum(ones, axis=0, dtype=np.float64)])
    return counts


def early_repeats(ids: Sequence[int], mix: Mix) -> int:
    """Return the number of records that came again before all records of their dataset had come.

    When all have come, the next pass over the dataset begins, and each may come again.
    """
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
