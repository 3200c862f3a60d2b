"""Division of records into shards.

Covers: cutting a sequence of records of known sizes into shards of nearly equal size. Does not
cover: the order of the records.
"""

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.units import format_size

__all__ = ["LEAST_SHARD_BYTES", "MOST_SHARDS", "cut"]

MOST_SHARDS = 99_999
"""Shard numbers have five digits in file names."""

LEAST_SHARD_BYTES = 1024
"""Smaller shards would be mostly names and descriptions."""


def cut(sizes_bytes: npt.NDArray[np.int64], *, shard_bytes: int | None, shards: int | None) -> npt.NDArray[np.int64]:
    """Return the index at which each shard begins, and finally the number of records.

    Every shard gets at least one record.

    Args:
        sizes_bytes: the size of each record, in the order of writing.
        shard_bytes: the approximate size of a shard; not given together with `shards`.
        shards: how many shards to make.

    Raises:
        ConfigError: both or neither are given, or the number of shards is impossible.
    """
    records = len(sizes_bytes)
    ends = np.cumsum(sizes_bytes, dtype=np.int64)
    total = int(ends[-1]) if records else 0
    if (shard_bytes is None) == (shards is None):
        raise ConfigError("give either the size of a shard or the number of shards")
    if shard_bytes is not None:
        if shard_bytes < LEAST_SHARD_BYTES:
            raise ConfigError(f"the size of a shard must be at least {LEAST_SHARD_BYTES} bytes, got {shard_bytes}")
        shards = min(max(-(-total // shard_bytes), 1), max(records, 1))
    assert shards is not None
    if not 1 <= shards <= MOST_SHARDS:
        advice = f" for {format_size(total)}; choose larger shards" if shards > MOST_SHARDS else ""
        raise ConfigError(f"the number of shards must be in [1, {MOST_SHARDS}], got {shards}{advice}")
    if shards > records:
        raise ConfigError(f"the number of shards must be at most {records}, the number of records, got {shards}")
    # A shard ends at the record in whose middle the shard's share of the bytes ends.
    shares = (np.arange(1, shards, dtype=np.float64) / shards) * total
    inner = np.searchsorted(ends - sizes_bytes // 2, shares, side="left").astype(np.int64)
    # One huge record may span several shares; each shard must still have a record of its own.
    steps = np.arange(1, shards, dtype=np.int64)
    inner = np.maximum.accumulate(np.maximum(inner - steps, 0)) + steps
    inner = np.minimum(inner, records - shards + steps)
    return np.concatenate((np.zeros(1, dtype=np.int64), inner, np.array([records], dtype=np.int64)))
