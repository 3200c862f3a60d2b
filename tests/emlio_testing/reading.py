"""Reading a dataset in a folder, for tests of what lies below a loader."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.clock import Clock
from emlio.errors import CorruptRecordError
from emlio.formats.contents import TFRECORD
from emlio.index.dataset import Dataset, Shard
from emlio.planner.catalog import Catalog
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.reading.engine import ReadEngine
from emlio.reading.feed import Feed
from emlio.reading.message_planner import StreamPosition
from emlio.reading.page_cache import PageCacheEngine
from emlio.reading.random_reader import RandomReader, bad_records, keep_checksums
from emlio.reading.ranges import RangeRead
from emlio.store.file_table import FileTable, NameTable
from emlio.store.folder import Folder
from emlio.store.folder_store import FolderStore, FolderTimes
from emlio.store.opened.leases import Leases
from emlio.store.opened.open_files import OpenFiles
from emlio_testing.clock import ManualClock

__all__ = ["added_checksums", "faults_in", "feed_of", "in_folder", "made_up", "page_cache", "ranges"]


def page_cache(dataset: Dataset, leases: Leases | None = None, **rooms: Any) -> PageCacheEngine:
    """Return the engine of a dataset in a folder, with open files of its own."""
    read_whole = any(shard.whole_files for shard in dataset.shards)
    return PageCacheEngine(dataset, OpenFiles(dataset.folder_store, leases, read_whole=read_whole, **rooms))


def feed_of(
    engine: ReadEngine,
    shuffle: str = "global",
    message_bytes: int = 1 << 20,
    *,
    batch_size: int = 4,
    seed: int = 0,
    spec: PlanSpec | None = None,
    rank: int = 0,
    position: tuple[int, int, int] = (0, 0, 0),
    end: int | None = None,
    owned: npt.NDArray[np.bool_] | None = None,
    clock: Clock | None = None,
) -> Feed:
    """Return a rank's feed of the dataset of an engine; by default it owns all shards.

    Args:
        engine: reads the dataset.
        shuffle: with `batch_size` and `seed`, instead of `spec`.
        message_bytes: of a message, at most.
        batch_size: see `shuffle`.
        seed: see `shuffle`.
        spec: of the plan.
        rank: of the plan.
        position: the epoch, origin and slot at which the feed begins.
        end: the epoch before which it ends.
        owned: the shards that it reads.
        clock: by which files are looked at again.
    """
    entries = engine.dataset.entries
    epoch, origin, slot = position
    spec = spec or PlanSpec(batch_size=batch_size, seed=seed, shuffle=Shuffle.parse(shuffle))
    return Feed(
        plan=Plan(Catalog(shards=entries), spec),
        rank=rank,
        position=StreamPosition(epoch=epoch, origin=origin, slot=slot, end=end),
        owned=owned if owned is not None else np.ones(len(entries), np.bool_),
        local=np.arange(len(entries)),
        engine=engine,
        message_bytes=message_bytes,
        clock=clock or ManualClock(),
    )


def ranges(file: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> RangeRead:
    """Return the read of some ranges, each of which is a record of the shard of the file's number."""
    return RangeRead(
        shard=file, record=np.arange(len(sizes)), file=file, starts=starts, sizes=sizes, size_bytes=int(sizes.sum())
    )


def in_folder(dataset: Dataset, folder: Folder) -> Dataset:
    """Return the same dataset, read through another folder object."""
    store = dataset.folder_store
    return Dataset(
        name=dataset.name,
        files=FolderStore(folder, store.table, store.folders),
        shards=dataset.shards,
        contents=dataset.contents,
        checksums=dataset.checksums,
    )


def faults_in(dataset: Dataset, shard: int) -> list[CorruptRecordError]:
    """Return the errors of a shard's bad records."""
    with RandomReader(dataset) as reader:
        return list(bad_records(reader, shard, lambda _: None))


def added_checksums(dataset: Dataset, shard: int) -> int:
    """Keep the unknown checksums of a shard, and return how many there were."""
    with RandomReader(dataset) as reader:
        return keep_checksums(reader, shard, lambda _: None)


def made_up(name: str, offsets: Mapping[str, Sequence[int]], *, folder: Path = Path("/"), digest: str = "d") -> Dataset:
    """Return a dataset of framed records without an index and without files, only with what is known of them.

    Args:
        name: its name.
        offsets: for each shard, the begin of each record, and the end of the last one.
        folder: where its files would be.
        digest: of each shard.
    """
    bounds = {shard: np.asarray(of, np.int64) for shard, of in offsets.items()}
    nothing = np.zeros(len(bounds), np.int64)
    table = FileTable(
        folder=folder,
        names=NameTable.of(bounds),
        sizes=np.array([of[-1] for of in bounds.values()], np.int64),
        mtimes_ns=nothing,
        ctimes_ns=nothing,
        inodes=np.arange(len(bounds)),
    )
    shards = [
        Shard(
            name=shard,
            records=len(of) - 1,
            size_bytes=int(of[-1]),
            digest=digest,
            starts=of[:-1],
            ends=of[1:],
            first_file=number,
        )
        for number, (shard, of) in enumerate(bounds.items())
    ]
    times = FolderTimes(names=NameTable.of(["."]), ctimes_ns=np.zeros(1, np.int64))
    with Folder(folder) as closed:
        files = FolderStore(closed, table, times)
    return Dataset(name=name, files=files, shards=tuple(shards), contents=TFRECORD)
