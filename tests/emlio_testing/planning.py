"""Catalogs that only count records, and the order that a plan gives them."""

from collections.abc import Mapping

import numpy as np

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.plan import Plan

__all__ = ["catalog_of", "order_of"]


def catalog_of(*sizes: int, named: Mapping[str, int] | None = None) -> Catalog:
    """Return the catalog of shards of so many records each, which have numbers as names, or these."""
    records = dict(sorted(named.items())) if named else {f"s{number:06d}": size for number, size in enumerate(sizes)}
    shards = (ShardEntry(name=name, records=size, size_bytes=size, digest="") for name, size in records.items())
    return Catalog(shards=tuple(shards))


def order_of(plan: Plan, epoch: int = 0) -> list[int]:
    """Return the ids of all records of an epoch in their order."""
    one = plan.epoch(epoch)
    ids: list[int] = one.ids_at(np.arange(one.length)).tolist()
    return ids
