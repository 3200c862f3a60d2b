"""Choosing the source for a dataset, by where it lies and how its records are read."""

from emlio.reading.ahead_budget import AheadBudget
from emlio.reading.bucket_source import BucketSource
from emlio.reading.files import OpenShards
from emlio.reading.group_cache import GroupCache
from emlio.reading.group_source import GroupSource
from emlio.reading.leases import Leases
from emlio.reading.source import Source
from emlio.shards.dataset import Dataset

__all__ = ["open_source"]


def open_source(
    dataset: Dataset, leases: Leases | None, budget: AheadBudget, groups: GroupCache | None = None
) -> Source:
    """Return what reads a dataset.

    Args:
        dataset: the dataset.
        leases: the leases on its shards, for a folder; without them all bytes are copied.
        budget: limits what is requested ahead, for a bucket.
        groups: keeps groups of rows, for tables; by default one of its own.
    """
    bucket, grouped = dataset.bucket, dataset.groups is not None
    # Groups are made in memory, so nothing of their files is lent.
    place = (
        OpenShards(dataset, None if grouped else leases) if bucket is None else BucketSource(dataset, bucket, budget)
    )
    return GroupSource(dataset, groups, place) if grouped else place
