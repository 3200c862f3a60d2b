"""One stream's messages, in order, read.

Covers: getting the bytes of the next message, with the ranges of following messages asked for ahead. Does not cover: which
records make a message (emlio.reading.course), threads and bounds (emlio.daemon.stream), sockets. Used by one thread at a time.
"""

import os
from collections import deque
from functools import partial
from threading import Event

import numpy as np
import numpy.typing as npt

from emlio.clock import Clock
from emlio.errors import CorruptRecordError
from emlio.planner.plan import Plan
from emlio.reading.course import LONG_RUN_BYTES, NO_OPENING, Course, MessagePlan, Opening, StreamPosition
from emlio.reading.files import OpenShards
from emlio.reading.gather import Gatherer, ShortReadError
from emlio.reading.patience import patiently
from emlio.reading.slices import Borrower

__all__ = ["Feed"]

_AHEAD = 3
"""Messages asked for ahead of the one being read: two or three hide a disk's latency, more only fill the cache."""


class Feed:
    """The messages of one stream from a position on.

    Attributes:
        ended: whether the plan has no more messages than those planned.
        searched_epoch: the epoch in which `next` last found nothing.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        rank: int,
        position: StreamPosition,
        owned: npt.NDArray[np.bool_],
        local: npt.NDArray[np.int64],
        shards: OpenShards,
        message_bytes: int,
        clock: Clock,
        opening: Opening = NO_OPENING,
    ) -> None:
        """A feed.

        Args:
            plan: what all sides agreed on.
            rank: whose part of it.
            position: where to begin.
            owned: (catalog shards,) which shards this stream carries.
            local: (catalog shards,) the shard's number in `shards`, or -1 where it is not held here.
            shards: the files.
            message_bytes: what a message is filled to.
            clock: for the age of checks.
            opening: how the first messages are filled instead.
        """
        self._shards = shards
        self._clock = clock
        course = Course(
            plan=plan,
            rank=rank,
            owned=owned,
            local=local,
            dataset=shards.dataset,
            message_bytes=message_bytes,
            opening=opening,
        )
        # Not a generator of the feed's own: the two would keep each other alive until the garbage collector comes by.
        self._coming = course.messages(position)
        self.ended = False
        self.searched_epoch = position.epoch
        self._planned: deque[MessagePlan] = deque()
        self._advised = 0
        self._stopped = Event()

    def stop(self) -> None:
        """Wait no more for descriptors or memory; from any thread."""
        self._stopped.set()

    def next(self, gatherer: Gatherer) -> MessagePlan | None:
        """Plan the next message; while the disk is what is waited for, ask for those behind it.

        None: there is none in this stretch of the plan, and unless the feed has `ended`, the next call searches on.
        """
        wanted = 1 + (_AHEAD if gatherer.cold else 0)
        while len(self._planned) < wanted:
            coming = next(self._coming, None)
            if isinstance(coming, MessagePlan):
                self._planned.append(coming)
                continue
            if coming is None:
                self.ended = True
            else:
                self.searched_epoch = coming.epoch
            break  # what is planned still goes out
        if not self._planned:
            return None
        if gatherer.cold:
            for message in list(self._planned)[self._advised :]:
                gatherer.advise(self._shards, message.shard, message.starts, message.sizes)
            self._advised = len(self._planned)
        self._advised = max(self._advised - 1, 0)
        return self._planned.popleft()

    def borrow(self, message: MessagePlan, gatherer: Gatherer, borrower: Borrower) -> npt.NDArray[np.uint8] | None:
        """The message's bytes where they lie, if they are one long run of a shard that nobody can shorten meanwhile.

        The borrower hears when nobody refers to them any more. None: they must be `read`.
        """
        if not message.one_run or message.size_bytes < LONG_RUN_BYTES:
            return None
        return patiently(partial(self._borrow, message, gatherer, borrower), self._stopped.wait)

    def _borrow(self, message: MessagePlan, gatherer: Gatherer, borrower: Borrower) -> npt.NDArray[np.uint8] | None:
        self._shards.check(message.shard[:1], self._clock.monotonic_ns())
        start = int(message.starts[0])
        view = self._shards.lend(int(message.shard[0]), start, start + message.size_bytes, borrower)
        if view is not None:
            gatherer.look_at_disk()
        return view

    def read(self, message: MessagePlan, gatherer: Gatherer, out: npt.NDArray[np.uint8]) -> None:
        """Fill `out`, of the message's size, with its records' frames."""
        patiently(partial(self._read, message, gatherer, out), self._stopped.wait)

    def _read(self, message: MessagePlan, gatherer: Gatherer, out: npt.NDArray[np.uint8]) -> None:
        self._shards.check_used(message.shard, self._clock.monotonic_ns())
        try:
            gatherer.read(self._shards, message.shard, message.starts, message.sizes, out)
        except ShortReadError as short:
            raise self._cut_short(message, short.position) from short

    def _cut_short(self, message: MessagePlan, at: int) -> CorruptRecordError:
        """What to say when the file ends before, or cannot be read at, a record; a file that changed says so itself."""
        number, offset = int(message.shard[at]), int(message.starts[at])
        shard = self._shards.dataset.shards[number]
        with self._shards.open(number) as descriptor:
            shard.check_unchanged(os.fstat(descriptor))
        record = int(np.searchsorted(shard.offsets, offset, side="right")) - 1
        return CorruptRecordError(
            f"record {record} of {shard.path} must have {int(message.sizes[at])} bytes at offset {offset}, "
            "they cannot be read",
            shard=shard.name,
            record=record,
            offset=offset,
        )
