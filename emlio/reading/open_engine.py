"""Choosing the engine for a dataset, by where it lies and how its records are made."""

from emlio.index.dataset import Dataset
from emlio.reading.bucket_engine import AheadBudget, BucketEngine
from emlio.reading.engine import ReadEngine
from emlio.reading.group_cache import GroupCache
from emlio.reading.group_engine import GroupEngine
from emlio.reading.page_cache import PageCacheEngine
from emlio.store.bucket.bucket_store import BucketStore
from emlio.store.opened.leases import Leases
from emlio.store.opened.open_files import OpenFiles

__all__ = ["open_engine"]


def open_engine(
    dataset: Dataset, leases: Leases | None, budget: AheadBudget, groups: GroupCache | None = None
) -> ReadEngine:
    """Return what reads a dataset.

    Args:
        dataset: the dataset.
        leases: the leases on its files, for a folder; without them all bytes are copied.
        budget: limits what is requested ahead, for a bucket.
        groups: keeps groups of rows, for tables; by default one of its own.
    """
    grouped = dataset.groups is not None
    engine: ReadEngine
    if isinstance(dataset.files, BucketStore):
        engine = BucketEngine(dataset, dataset.files, budget)
    else:
        read_whole = any(shard.whole_files for shard in dataset.shards)
        # Groups are made in memory, so nothing of their files is lent.
        lent = None if grouped else leases
        engine = PageCacheEngine(dataset, OpenFiles(dataset.folder_store, lent, read_whole=read_whole))
    return GroupEngine(engine, groups) if grouped else engine
