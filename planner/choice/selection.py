"""The interface of subsets: a choice of records, and the choice made from one catalog.

Covers: what a subset must offer, counting its records by shard. Does not cover: the kinds of subsets (fraction.py,
record_set.py), the order of their records (choice.py).
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog, ShardEntry

__all__ = ["Selected", "Subset", "count_by_shard"]


class Selected(Protocol):
    """The records that a subset chose from one catalog, numbered in the order of the dataset. Immutable.

    Attributes:
        within: the shards of the catalog with the number of chosen records in each.
    """

    within: Catalog

    def records(self, numbers: npt.NDArray[np.int64], *, in_order: bool) -> npt.NDArray[np.int64]:
        """Return the chosen record with each number, as an id of the catalog.

        Args:
            numbers: numbers in [0, within.records).
            in_order: whether a greater number must mean a greater id. Otherwise only the shard is certain, and that each
                number stands for another record, which may be faster.
        """
        ...

    def has(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each record of the catalog whether it was chosen."""
        ...


class Subset(Protocol):
    """A choice of records. Frozen and hashable; equal ones choose the same on every machine."""

    def __str__(self) -> str:
        """Return the text from which the other side makes the same subset."""
        ...

    def select(self, catalog: Catalog) -> Selected:
        """Return the chosen records of a catalog, at least one.

        Raises:
            ConfigError: the subset does not fit the catalog, or nothing is left.
        """
        ...


def count_by_shard(catalog: Catalog, counts: npt.NDArray[np.int64], words: str) -> Catalog:
    """Return the catalog of a subset: the same shards, with the number of chosen records in each.

    Raises:
        ConfigError: none is left; `words` name the subset.
    """
    if not int(counts.sum()):
        raise ConfigError(f"a subset must leave at least one record, {words} leaves none of {catalog.records:,}")
    return Catalog(
        shards=tuple(
            ShardEntry(name=entry.name, records=count, size_bytes=entry.size_bytes, digest=entry.digest)
            for entry, count in zip(catalog.shards, counts.tolist(), strict=True)
        )
    )
