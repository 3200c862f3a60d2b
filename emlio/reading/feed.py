"""The messages of one stream, in order, with their bytes.

Used by one thread at a time.
"""

from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from emlio.clock import Clock
from emlio.planner.plan import Plan
from emlio.reading.engine import ReadEngine
from emlio.reading.gather import Gatherer
from emlio.reading.message_planner import (
    CHUNK,
    LONG_RUN_BYTES,
    NO_OPENING,
    MessagePlan,
    MessagePlanner,
    Opening,
    StreamFuture,
    StreamPosition,
)
from emlio.store.opened.slices import Borrower

__all__ = ["Feed"]


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
        engine: ReadEngine,
        message_bytes: int,
        clock: Clock,
        opening: Opening = NO_OPENING,
        most_bytes: Callable[[], int] | None = None,
        chunk: int = CHUNK,
    ) -> None:
        """See the class.

        Args:
            plan: the plan that all sides agreed on.
            rank: the rank whose records are read.
            position: the position to begin from.
            owned: (catalog shards,) which shards this stream carries.
            local: (catalog shards,) the shard's number in the dataset, or -1 if it is not held here.
            engine: reads the files.
            message_bytes: the size to which messages are filled.
            clock: for the age of checks.
            opening: the size of the first messages instead.
            most_bytes: returns the current limit of the size, if that is smaller.
            chunk: the most places planned at once.
        """
        self._engine = engine
        self._clock = clock
        course = MessagePlanner(
            plan=plan,
            rank=rank,
            owned=owned,
            local=local,
            dataset=engine.dataset,
            message_bytes=message_bytes,
            opening=opening,
            most_bytes=most_bytes,
            chunk=chunk,
            by_windows=engine.keeps_windows,
        )
        # Not a generator of the feed's own: the two would keep each other alive until the garbage
        # collector runs.
        self._coming = course.messages(position)
        self.ended = False
        self.searched_epoch = position.epoch
        self._planned: deque[MessagePlan] = deque()
        self._reads = engine.reads()
        future = StreamFuture(plan=plan, rank=rank, position=position, owned=owned, local=local)
        self._reads.foresee(future, clock)
        self._requested = 0

    def stop(self) -> None:
        """Stop waiting, and drop what was requested; may be called by any thread."""
        self._reads.close()

    def next(self, gatherer: Gatherer) -> MessagePlan | None:
        """Return the next message; where reading waits for its source, request the following ones.

        Returns:
            None if this stretch of the plan has no message. Unless the feed has `ended`, the next
            call continues the search.
        """
        while not self._planned or self._reads.wants(self._planned, gatherer):
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
        for message in list(self._planned)[self._requested :]:
            if not self._reads.submit(message, gatherer):
                break
            self._requested += 1
        self._requested = max(self._requested - 1, 0)
        return self._planned.popleft()

    def borrow(self, message: MessagePlan, gatherer: Gatherer, borrower: Borrower) -> npt.NDArray[np.uint8] | None:
        """Return the message's bytes without a copy, or None if they must be `read`.

        They must be one long run of a shard; see `Reads.borrow`.
        """
        if not message.one_run or message.size_bytes < LONG_RUN_BYTES or message.notes:
            return None
        checksums = self._engine.dataset.checksums
        if checksums is not None and not checksums.known(message.shard, message.record).all():
            return None  # they are computed from a copy, which no other process can shorten meanwhile
        return self._reads.borrow(message, gatherer, borrower, self._clock.monotonic_ns())

    def read(self, message: MessagePlan, gatherer: Gatherer, out: npt.NDArray[np.uint8]) -> None:
        """Fill `out`, which has the size of the message's payload, with its records and notes."""
        out[message.size_bytes :] = np.frombuffer(message.notes, np.uint8)
        self._reads.complete(message, gatherer, out[: message.size_bytes], self._clock.monotonic_ns())

    def crcs(self, message: MessagePlan, payload: memoryview) -> bytes:
        """Return the checksums that the message's records must have, packed; none if they are framed.

        A record that is read for the first time has the checksum of what was read. At any later
        time it must have the same one, which the rank checks.
        """
        checksums = self._engine.dataset.checksums
        if checksums is None:
            return b""
        if not checksums.known(message.shard, message.record).all():
            # The checksum is kept: it must not be of bytes that another process was writing.
            self._engine.confirm(message.file)
        return checksums.of(message.shard, message.record, message.sizes, payload).astype("<u4").tobytes()
