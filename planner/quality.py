"""Measurements of how well an order mixes.

They are measured on a bounded number of places of one epoch, so a billion records cost as much as a
million. Does not cover: the effect on a training run.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.order import DEFAULT_BLOCK_RECORDS
from emlio.planner.plan import Plan

__all__ = ["Quality", "measure_quality"]

_SAMPLES: Final = 2**16
"""With batches of 256 these are 256 batches, and a correlation is accurate to about 0.004."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Figures of one epoch's mixing, compared with a perfectly random order.

    Attributes:
        shuffle: the measured order.
        batches: the number of batches examined, spread evenly over the epoch.
        batch_samples: samples in each of them.
        neighbour_correlation: correlation of the ids at neighbouring places: random 0, unshuffled
            1. 0 if there are none.
        neighbour_distance: mean distance of those ids as a fraction of all records: random 1/3,
            unshuffled near 0.
        shards_per_batch: mean number of distinct shards in a batch.
        shards_per_batch_random: the same for a random order, on average.
        blocks_per_batch: mean number of distinct blocks in a batch, which does not depend on the
            shards' size.
        blocks_per_batch_random: the same for a random order, on average.
        block_records: records in such a block.
    """

    shuffle: str
    batches: int
    batch_samples: int
    neighbour_correlation: float
    neighbour_distance: float
    shards_per_batch: float
    shards_per_batch_random: float
    blocks_per_batch: float
    blocks_per_batch_random: float
    block_records: int


def measure_quality(
    plan: Plan, epoch: int = 0, *, block_records: int = DEFAULT_BLOCK_RECORDS, samples: int = _SAMPLES
) -> Quality:
    """Return the figures of one epoch of a plan.

    Args:
        plan: the plan; of its spec only seed, shuffle and batch_size count.
        epoch: the number of the epoch.
        block_records: the number of neighbouring ids that are counted as a block.
        samples: the most places to examine.
    """
    if block_records < 1 or samples < 1:
        raise ConfigError(f"block_records and samples must be at least 1, got {block_records} and {samples}")
    order = plan.epoch(epoch)
    records = order.length
    length = min(plan.spec.batch_size, samples, records)
    batches = min(samples // length, records // length)
    firsts = np.array([number * (records // length) // batches * length for number in range(batches)], dtype=np.int64)
    places = firsts[:, np.newaxis] + np.arange(length, dtype=np.int64)
    ids = order.ids_at(places.ravel())
    shards = plan.catalog.shards_of(ids).reshape(places.shape)
    ids = ids.reshape(places.shape)
    full_blocks, rest = divmod(records, block_records)
    block_sizes = {block_records: full_blocks, rest: 1}
    shard_sizes = dict(zip(*_counts(np.diff(plan.catalog.bases)), strict=True))
    before, after = ids[:, :-1].ravel(), ids[:, 1:].ravel()
    return Quality(
        shuffle=str(plan.spec.shuffle),
        batches=batches,
        batch_samples=length,
        neighbour_correlation=_correlation(before, after),
        neighbour_distance=float(np.abs(after - before).mean()) / records if before.size else 0.0,
        shards_per_batch=_distinct(shards),
        shards_per_batch_random=_expected_distinct(shard_sizes, records, length),
        blocks_per_batch=_distinct(ids // block_records),
        blocks_per_batch_random=_expected_distinct(block_sizes, records, length),
        block_records=block_records,
    )


def _counts(values: npt.NDArray[np.int64]) -> tuple[list[int], list[int]]:
    distinct, counts = np.unique(values, return_counts=True)
    return [int(value) for value in distinct], [int(count) for count in counts]


def _correlation(before: npt.NDArray[np.int64], after: npt.NDArray[np.int64]) -> float:
    if not before.size:
        return 0.0
    left = before.astype(np.float64) - float(before.mean())
    right = after.astype(np.float64) - float(after.mean())
    spread = math.sqrt(float(left @ left)) * math.sqrt(float(right @ right))
    return float(left @ right) / spread if spread else 0.0


def _distinct(groups: npt.NDArray[np.int64]) -> float:
    """Return the mean number of different values in a row."""
    ordered = np.sort(groups, axis=1)
    return 1.0 + float(np.count_nonzero(np.diff(ordered, axis=1))) / len(ordered)


def _expected_distinct(sizes: dict[int, int], records: int, drawn: int) -> float:
    """Return how many groups `drawn` records belong to on average, without replacement.

    Args:
        sizes: the number of groups of each size.
        records: the number of records in all groups.
        drawn: the number of records drawn.
    """
    left = records - np.arange(drawn, dtype=np.float64)
    expected = 0.0
    for size, groups in sizes.items():
        # Each draw misses the group with the fraction of what is left outside it; logarithms keep
        # tiny fractions exact.
        missed = float(np.log1p(-np.minimum(size / left, 1.0 - 1e-15)).sum())
        expected -= groups * math.expm1(missed)
    return expected
