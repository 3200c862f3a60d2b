"""Choosing the source for a dataset, by where it lies."""

from emlio.reading.ahead_budget import AheadBudget
from emlio.reading.bucket_source import BucketSource
from emlio.reading.files import OpenShards
from emlio.reading.leases import Leases
from emlio.reading.source import Source
from emlio.shards.dataset import Dataset

__all__ = ["open_source"]


def open_source(dataset: Dataset, leases: Leases | None, budget: AheadBudget) -> Source:
    """Return what reads a dataset.

    Args:
        dataset: the dataset.
        leases: the leases on its shards, for a folder; without them all bytes are copied.
        budget: limits what is requested ahead, for a bucket.
    """
    bucket = dataset.bucket
    return OpenShards(dataset, leases) if bucket is None else BucketSource(dataset, bucket, budget)
