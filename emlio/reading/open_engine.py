"""Choosing the engine for a dataset, by where it lies and how its records are made."""

import logging

from emlio.index.dataset import Dataset
from emlio.native.disk import DiskQueue
from emlio.reading.bucket_engine import BucketEngine
from emlio.reading.buffers import AheadBudget
from emlio.reading.direct.direct_engine import DirectEngine
from emlio.reading.direct.io_settings import IoSettings
from emlio.reading.engine import ReadEngine
from emlio.reading.group_cache import GroupCache
from emlio.reading.group_engine import GroupEngine
from emlio.reading.page_cache import PageCacheEngine
from emlio.reading.sharing.shared_records import SharedMemory
from emlio.store.bucket.bucket_store import BucketStore
from emlio.store.opened.leases import Leases
from emlio.store.opened.open_files import OpenFiles

__all__ = ["open_engine"]

_LOG = logging.getLogger(__name__)


def open_engine(
    dataset: Dataset,
    leases: Leases | None,
    budget: AheadBudget,
    groups: GroupCache | None = None,
    *,
    direct: IoSettings | None = None,
    memory: SharedMemory | None = None,
) -> ReadEngine:
    """Return what reads a dataset.

    Args:
        dataset: the dataset.
        leases: the leases on its files, for a folder; without them all bytes are copied.
        budget: limits what is requested ahead, for a bucket, or read directly.
        direct: how a folder is read past the page cache; by default it is not.
        memory: keeps records that several jobs need, read directly; without it each job reads its own.
        groups: keeps groups of rows, for tables; by default one of its own.
    """
    grouped = dataset.groups is not None
    engine: ReadEngine
    if isinstance(dataset.files, BucketStore):
        engine = BucketEngine(dataset, dataset.files, budget)
    else:
        read_whole = any(shard.whole_files for shard in dataset.shards)
        # Groups are made in memory, so nothing of their files is lent.
        lent = None if grouped or direct else leases
        files = OpenFiles(dataset.folder_store, lent, read_whole=read_whole)
        past = _direct_engine(dataset, files, budget, direct, memory) if direct else None
        engine = past or PageCacheEngine(dataset, files)
    return GroupEngine(engine, groups) if grouped else engine


def _direct_engine(
    dataset: Dataset, files: OpenFiles, budget: AheadBudget, settings: IoSettings, memory: SharedMemory | None
) -> DirectEngine | None:
    """Return the engine that reads past the page cache; None if the system allows no queue of transfers."""
    try:
        queue = DiskQueue(settings.queue_depth)
    except OSError as error:
        _LOG.warning("dataset %r: direct reading is not possible: %s", dataset.name, error.strerror)
        return None
    direct = OpenFiles(dataset.folder_store, read_whole=True, direct=True)
    return DirectEngine(dataset, files, direct, queue, budget, settings.piece_bytes, memory)
