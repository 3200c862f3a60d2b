"""Streams of small records, and the threads that read for them."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from emlio.clock import SystemClock
from emlio.daemon.reading.readers import Readers
from emlio.daemon.reading.session_memory import MemoryBudget, SessionMemory
from emlio.daemon.reading.stream import Outgoing, Stream, StreamLimits, held_bytes
from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.reading.buffers import BufferPool
from emlio.reading.feed import Feed
from emlio.reading.message_planner import StreamPosition
from emlio.tfrecord import FRAME_BYTES
from emlio.wire.seal import SECRET_BYTES, StreamSeal
from emlio_testing.reading import page_cache

__all__ = ["FOR_EVER_S", "HELD", "MESSAGE", "RECORD", "numbers_of", "open_streams", "opener_of", "start_readers"]

RECORD = 1000 - FRAME_BYTES
MESSAGE, FOR_EVER_S = 2000, 20
_SECRET = bytes(range(SECRET_BYTES))
HELD = held_bytes(MESSAGE, 2)
"""The bytes for which a message of two records counts while it is held."""


@contextmanager
def open_streams(
    folder: Path,
    count: int = 1,
    *,
    limit_bytes: int = 1 << 30,
    memory_bytes: int = 1 << 30,
    session: int = 7,
    world_size: int = 1,
    absent_records: int = 0,
    cipher: str = "",
    one_session: bool = False,
    epochs: int | None = None,
) -> Generator[list[Stream]]:
    """Open `count` streams of the dataset in `folder`, with records in order.

    Args:
        folder: the dataset.
        count: the number of streams.
        limit_bytes: the limit of each stream.
        memory_bytes: the memory of all streams.
        session: the number of the session.
        world_size: the number of ranks.
        absent_records: if not 0, the plan has one more shard, of so many records, which is not held
            here; then records are shuffled.
        cipher: if given, records are sealed with it; `opener_of` opens them.
        one_session: whether each stream follows the one before in the same session.
        epochs: the number of epochs that are wanted; None for no end.
    """
    shards = page_cache(open_dataset("numbers", folder))
    held = len(shards.dataset.entries)
    absent = ShardEntry(name="zzz", records=absent_records, size_bytes=16 * absent_records, digest="0" * 32)
    catalog = Catalog(shards=(*shards.dataset.entries, *((absent,) if absent_records else ())))
    shuffle = Shuffle.parse("global" if absent_records else "none")
    plan = Plan(catalog, PlanSpec(batch_size=10, world_size=world_size, shuffle=shuffle))
    pool, budget, made = BufferPool(MESSAGE, 1 << 20), MemoryBudget(memory_bytes), list[Stream]()
    memory = SessionMemory(budget)
    for number in range(count):
        feed = Feed(
            plan=plan,
            rank=0,
            position=StreamPosition(epoch=0, origin=0, slot=0, end=epochs),
            owned=np.arange(len(catalog.shards)) < held,
            local=np.where(np.arange(len(catalog.shards)) < held, np.arange(len(catalog.shards)), -1),
            engine=shards,
            message_bytes=MESSAGE,
            clock=SystemClock(),
        )
        made.append(
            Stream(
                session=session,
                stream=1 + number,
                feed=feed,
                pool=pool,
                memory=memory if one_session else SessionMemory(budget),
                limits=StreamLimits(ready_bytes=limit_bytes),
                label=f"session {session}",
                seal=_seal(session, 1 + number, cipher) if cipher else None,
            )
        )
    try:
        yield made
    finally:
        for stream in made:
            stream.close()
        shards.close()
        shards.dataset.close()


def _seal(session: int, stream: int, cipher: str) -> StreamSeal:
    return StreamSeal(cipher=cipher, secret=_SECRET, session=session, stream=stream)


def opener_of(stream: Stream, cipher: str) -> StreamSeal:
    """Return the seal that opens a stream's messages."""
    return _seal(stream.session, stream.stream, cipher)


def numbers_of(outgoing: Outgoing) -> list[int]:
    """Return the numbers of a message's records."""
    frames = outgoing.payload.tobytes()
    return [int.from_bytes(frames[at + 12 : at + 20], "little") for at in range(0, len(frames), 1000)]


@contextmanager
def start_readers(**options: Any) -> Generator[Readers]:
    """Run threads that read, until the end of the block."""
    usual: dict[str, Any] = {"threads": 2, "memory_bytes": lambda: 100 * MESSAGE}
    readers = Readers(**(usual | options))
    readers.start()
    try:
        yield readers
    finally:
        readers.close()
