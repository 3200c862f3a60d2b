"""A seed for each record in each epoch, for random augmentation: crops, flips, colours.

The seed depends only on the plan's seed, the epoch and the record's id. So a picture is cropped the
same way whichever rank and batch it is in, and also after a job was stopped and resumed.

Covers: the seeds, and numbers in [0, 1) made from them, the same on every machine and with every
release of NumPy. Does not cover: their use. A change of one result is a change of every augmented
run.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.draws import draw
from emlio.errors import ConfigError

__all__ = ["sample_seeds", "uniforms"]

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
"""The step from one column to the next: odd and without a pattern, so that neither neighbouring
seeds nor seeds a power of two apart have a number in common in different columns."""

_SPARE_BITS: Final = np.uint64(40)
"""A float32 holds 24 bits exactly; more would round the largest up to 1."""


def sample_seeds(seed: int, epoch: int, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return one seed for each record; within an epoch no two records have the same.

    Args:
        seed: the seed of the plan.
        epoch: the number of the epoch, at least 0.
        ids: the ids of the records, in any order and number.
    """
    if epoch < 0:
        raise ConfigError(f"epoch must be at least 0, got {epoch}")
    if ids.dtype != np.int64:
        raise ConfigError(f"ids must be int64, got {ids.dtype}")
    return draw(f"sample/{epoch}", seed, ids)


def uniforms(seeds: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.float32]:
    """Return numbers uniform over [0, 1): a row of `count` for each seed.

    A row begins with the same numbers whatever `count` is, so one more draw changes none of those
    before it.

    Args:
        seeds: the result of `sample_seeds`.
        count: the numbers for each seed, at least 1.
    """
    if seeds.dtype != np.uint64 or seeds.ndim != 1:
        raise ConfigError(f"seeds must be uint64 and one-dimensional, got {seeds.dtype} {seeds.shape}")
    if count < 1:
        raise ConfigError(f"count must be at least 1, got {count}")
    numbers = seeds[:, np.newaxis] + _STEP * np.arange(count, dtype=np.uint64)
    words = draw("uniform", 0, numbers.view(np.int64))
    spread: npt.NDArray[np.float32] = (words >> _SPARE_BITS).astype(np.float32)
    spread *= np.float32(2.0**-24)
    return spread
