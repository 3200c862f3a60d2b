"""The exactness with which a loader kept the proportions of a mixture, from the ids in the order of handing out."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio_bench.harness.results import Run
from emlio_bench.mixtures.mix import Mix
from emlio_bench.race.records.order import Epoch

__all__ = ["BATCH", "DISTINCT", "EARLY", "EPOCH", "WINDOW", "early_repeats", "values_of_mix", "wrong_mix"]

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
