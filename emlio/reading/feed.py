"""The messages of one stream, in order, with their bytes.

Covers: reading the next message, and asking the disk for following ones ahead. Does not cover:
which records make a message (emlio.reading.message_planner), threads and limits
(emlio.daemon.reading.stream), sockets. Used by one thread at a time.
"""

import os
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Event

import numpy as np
import numpy.typing as npt

from emlio.clock import Clock
from emlio.errors import CorruptRecordError
from emlio.planner.plan import Plan
from emlio.reading.files import OpenShards
from emlio.reading.gather import Gatherer, ShortReadError
from emlio.reading.message_planner import (
    LONG_RUN_BYTES,
    NO_OPENING,
    MessagePlan,
    MessagePlanner,
    Opening,
    StreamPosition,
)
from emlio.reading.patience import patiently
from emlio.reading.slices import Borrower

__all__ = ["Feed"]

_AHEAD = 3
"""The number of messages requested ahead: two or three hide a disk's latency, more only fill the
cache."""


class Feed:
    """The messages of one stream from a position on.

    Attributes:
        ended: whether the plan has no messages beyond those planned.
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
        most_bytes: Callable[[], int] | None = None,
        chunk: int = 1 << 14,
    ) -> None:
        """See the class.

        Args:
            plan: the plan that all sides agreed on.
            rank: the rank whose records are read.
            position: the position to begin from.
            owned: (catalog shards,) which shards this stream carries.
            local: (catalog shards,) the shard's number in `shards`, or -1 if it is not held here.
            shards: the files.
            message_bytes: the size to which messages are filled.
            clock: for the age of checks.
            opening: the size of the first messages instead.
            most_bytes: returns the current limit of the size, if that is smaller.
            chunk: the most places planned at once.
        """
        self._shards = shards
        self._clock = clock
        course = MessagePlanner(
            plan=plan,
            rank=rank,
            owned=owned,
            local=local,
            dataset=shards.dataset,
            message_bytes=message_bytes,
            opening=opening,
            most_bytes=most_bytes,
            chunk=chunk,
        )
        # Not a generator of the feed's own: the two would keep each other alive until the garbage
        # collector runs.
        self._coming = course.messages(position)
        self.ended = False
        self.searched_epoch = position.epoch
        self._planned: deque[MessagePlan] = deque()
        self._advised = 0
        self._stopped = Event()

    def stop(self) -> None:
        """Stop waiting for descriptors or memory; may be called by any thread."""
        self._stopped.set()

    def next(self, gatherer: Gatherer) -> MessagePlan | None:
        """Return the next message; while the disk is slow, request the following ones from it.

        Returns:
            None if this stretch of the plan has no message. Unless the feed has `ended`, the next
            call continues the search.
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
            break  # messages already planned are still returned
        if not self._planned:
            return None
        if gatherer.cold:
            for message in list(self._planned)[self._advised :]:
                gatherer.advise(self._shards, message.file, message.starts, message.sizes)
            self._advised = len(self._planned)
        self._advised = max(self._advised - 1, 0)
        return self._planned.popleft()

    def borrow(self, message: MessagePlan, gatherer: Gatherer, borrower: Borrower) -> npt.NDArray[np.uint8] | None:
        """Return the message's bytes without a copy, or None if they must be `read`.

        They must be one long run of a shard under a lease, which nothing can shorten meanwhile. The
        borrower is told when nothing refers to them any more.
        """
        if not message.one_run or message.size_bytes < LONG_RUN_BYTES or message.notes:
            return None
        checksums = self._shards.dataset.checksums
        if checksums is not None and not checksums.known(message.shard, message.record).all():
            return None  # they are computed from a copy, which no other process can shorten meanwhile
        return patiently(partial(self._borrow, message, gatherer, borrower), self._stopped.wait)

    def _borrow(self, message: MessagePlan, gatherer: Gatherer, borrower: Borrower) -> npt.NDArray[np.uint8] | None:
        self._shards.check(message.file[:1], self._clock.monotonic_ns())
        start = int(message.starts[0])
        view = self._shards.lend(int(message.file[0]), start, start + message.size_bytes, borrower)
        if view is not None:
            gatherer.look_at_disk()
        return view

    def read(self, message: MessagePlan, gatherer: Gatherer, out: npt.NDArray[np.uint8]) -> None:
        """Fill `out`, which has the size of the message's payload, with its records and notes."""
        patiently(partial(self._read, message, gatherer, out), self._stopped.wait)

    def _read(self, message: MessagePlan, gatherer: Gatherer, out: npt.NDArray[np.uint8]) -> None:
        self._shards.check_used(message.file, self._clock.monotonic_ns())
        records = out[: message.size_bytes]
        out[message.size_bytes :] = np.frombuffer(message.notes, np.uint8)
        try:
            gatherer.read(self._shards, message.file, message.starts, message.sizes, records)
        except ShortReadError as short:
            raise self._cut_short(message, short.position) from short

    def _cut_short(self, message: MessagePlan, at: int) -> CorruptRecordError:
        """Return the error for a record that the file lacks or cannot deliver.

        Raises another error if the file has changed.
        """
        number, offset, record = int(message.file[at]), int(message.starts[at]), int(message.record[at])
        dataset = self._shards.dataset
        with self._shards.open(number) as descriptor:
            dataset.files.check_unchanged(number, os.fstat(descriptor))
        return CorruptRecordError(
            f"record {record} of {dataset.files.path(number)} cannot be read: it must have {int(message.sizes[at])} "
            f"bytes at offset {offset}",
            shard=dataset.shards[int(message.shard[at])].name,
            record=record,
            offset=offset,
        )

    def crcs(self, message: MessagePlan, payload: memoryview) -> bytes:
        """Return the checksums that the message's records must have, packed; none if they are framed.

        A record that is read for the first time has the checksum of what was read. At any later
        time it must have the same one, which the rank checks.
        """
        checksums = self._shards.dataset.checksums
        if checksums is None:
            return b""
        return checksums.of(message.shard, message.record, message.sizes, payload).astype("<u4").tobytes()
