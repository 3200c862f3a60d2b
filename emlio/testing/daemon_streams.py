"""Streams of small records, and the threads that read for them.

Covers: what tests of the daemon's threads share. Does not cover: sending.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from emlio.clock import SystemClock
from emlio.daemon.ledger import Ledger
from emlio.daemon.pace_keeper import PaceKeeper
from emlio.daemon.readers import Readers
from emlio.daemon.stream import Outgoing, Stream, held_bytes
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.reading.buffers import BufferPool
from emlio.reading.course import StreamPosition
from emlio.reading.feed import Feed
from emlio.reading.files import OpenShards
from emlio.shards.dataset import open_dataset
from emlio.tfrecord import FRAME_BYTES

__all__ = ["FOR_EVER_S", "HELD", "MESSAGE", "RECORD", "numbers_of", "open_streams", "start_readers"]

RECORD = 1000 - FRAME_BYTES
MESSAGE, FOR_EVER_S = 2000, 20
HELD = held_bytes(MESSAGE, 2)
"""What a message of two records counts as while it is held."""


@contextmanager
def open_streams(
    folder: Path,
    count: int = 1,
    *,
    limit_bytes: int = 1 << 30,
    memory_bytes: int = 1 << 30,
    session: int = 7,
    pace: PaceKeeper | None = None,
    world_size: int = 1,
    absent_records: int = 0,
) -> Generator[list[Stream]]:
    """So many streams of the dataset in `folder`, records in their order.

    With `absent_records` the plan has one more shard, of so many records, which is not held here; then records are shuffled.
    """
    shards = OpenShards(open_dataset("numbers", folder))
    held = len(shards.dataset.entries)
    absent = ShardEntry(name="zzz", records=absent_records, size_bytes=16 * absent_records, digest="0" * 32)
    catalog = Catalog(shards=(*shards.dataset.entries, *((absent,) if absent_records else ())))
    shuffle = Shuffle.parse("global" if absent_records else "none")
    plan = Plan(catalog, PlanSpec(batch_size=10, world_size=world_size, shuffle=shuffle))
    pool, ledger, made = BufferPool(MESSAGE, 1 << 20), Ledger(memory_bytes), list[Stream]()
    for number in range(count):
        feed = Feed(
            plan=plan,
            rank=0,
            position=StreamPosition(epoch=0, origin=0, slot=0),
            owned=np.arange(len(catalog.shards)) < held,
            local=np.where(np.arange(len(catalog.shards)) < held, np.arange(len(catalog.shards)), -1),
            shards=shards,
            message_bytes=MESSAGE,
            clock=SystemClock(),
        )
        made.append(
            Stream(
                session=session,
                stream=1 + number,
                feed=feed,
                pool=pool,
                ledger=ledger,
                limit_bytes=limit_bytes,
                label=f"session {session}",
                pace=pace,
            )
        )
    try:
        yield made
    finally:
        for stream in made:
            stream.close()
        shards.close()
        shards.dataset.close()


def numbers_of(outgoing: Outgoing) -> list[int]:
    """The numbers of a message's records."""
    frames = outgoing.payload.tobytes()
    return [int.from_bytes(frames[at + 12 : at + 20], "little") for at in range(0, len(frames), 1000)]


@contextmanager
def start_readers(**options: Any) -> Generator[Readers]:
    """Threads that read, until the end of the block."""
    usual: dict[str, Any] = {"threads": 2, "memory_bytes": 100 * MESSAGE}
    readers = Readers(**(usual | options))
    readers.start()
    try:
        yield readers
    finally:
        readers.close()
