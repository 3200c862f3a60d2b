"""Reading messages from a bucket, where every request waits for the network.

Many requests are under way at once: all those of a message, and those of the messages after it, as
far as the memory allows. Each answer says which object it is of, so a replaced one is found by
reading it.

Covers: requests ahead, memory of their answers, putting records in place. Does not cover: which
ranges are fetched (emlio.reading.pieces), single requests and retries (emlio.objects).
"""

import io
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, RLock
from typing import Final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from emlio.errors import ClosedError, DatasetError
from emlio.objects.requests import PIECE_BYTES, wait_for
from emlio.reading.ahead_budget import AheadBudget
from emlio.reading.gather import Gatherer
from emlio.reading.message_planner import MessagePlan
from emlio.reading.pieces import Piece, pieces_of
from emlio.reading.slices import Borrower
from emlio.shards.dataset import Dataset
from emlio.shards.group_records import in_bucket
from emlio.shards.objects.bucket import Bucket
from emlio.shards.objects.object_table import ObjectTable

__all__ = ["BucketSource"]

_MOST_MESSAGES: Final = 64
"""Messages requested ahead. The limit that counts is that in bytes; this one bounds the planning for
messages of few bytes."""

_LOOKED_AT: Final = 16
_LOOK_S: Final = 3.0
"""Objects looked at when a rank joins, and for how long: the rank waits for it. All are compared when
they are read, so a server that does not answer now is no reason to refuse the rank."""


def _ignore(path: Path, borrowers: Collection[Borrower]) -> None:
    """Do nothing: nothing is lent."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fetch:
    """The requests of one message; `size_bytes` are counted for their answers."""

    parts: Sequence[tuple[Piece, "Future[Buffer]"]]
    size_bytes: int

    def cancel(self) -> None:
        """Drop the requests that have not been sent."""
        for _, future in self.parts:
            future.cancel()


class BucketSource:
    """One dataset's objects; see `Source`."""

    def __init__(self, dataset: Dataset, bucket: Bucket, budget: AheadBudget) -> None:
        """See the class.

        Args:
            dataset: the dataset.
            bucket: its bucket, which the dataset closes.
            budget: limits the bytes requested ahead.
        """
        if not isinstance(dataset.files, ObjectTable):
            raise AssertionError("a dataset in a bucket has a table of objects")
        self.dataset = dataset
        self.on_stuck: Callable[[Path, Collection[Borrower]], None] = _ignore
        self._bucket = bucket
        self._table = dataset.files
        self._budget = budget
        self._closing = Event()

    def read_ahead(self) -> "BucketReadAhead":
        """See `Source`."""
        return BucketReadAhead(self._bucket, self._table, self._budget)

    def check_paths(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """See `Source`."""
        count = len(self._table)
        step = -(-count // _LOOKED_AT)
        deadline_s = time.monotonic() + _LOOK_S
        looks = [
            self._bucket.requests.submit(partial(self._bucket.check, self._table, number))
            for number in range(0, count, step)
        ]
        try:
            for look in looks:
                if stopped() or self._closing.is_set():
                    return
                wait_for(look, max(deadline_s - time.monotonic(), 0))
        except TimeoutError:
            return
        except DatasetError as error:
            if not error.passing:
                raise
        finally:
            for look in looks:
                look.cancel()

    def opened(self, number: int) -> io.RawIOBase:
        """Return an object as a file."""
        return in_bucket(self._bucket, self._table, number)

    def idle(self) -> bool:
        """See `Source`. Nothing is lent."""
        return True

    def close(self) -> None:
        """See `Source`."""
        self._closing.set()


class BucketReadAhead:
    """See `ReadAhead`."""

    def __init__(self, bucket: Bucket, table: ObjectTable, budget: AheadBudget) -> None:
        self._bucket = bucket
        self._table = table
        self._budget = budget
        self._fetches: dict[int, _Fetch] = {}
        self._held_bytes = 0
        self._closed = False
        # Reentrant: the garbage collector may drop a stream, which closes this, while it is held.
        self._lock = RLock()
        budget.join()

    def wants(self, planned: Sequence[MessagePlan], gatherer: Gatherer) -> bool:
        """See `ReadAhead`."""
        if len(planned) > _MOST_MESSAGES:
            return False
        # One ahead in any case: with very many streams a share is less than a message.
        return len(planned) == 1 or sum(message.size_bytes for message in planned) < self._budget.share_bytes

    def request(self, message: MessagePlan, gatherer: Gatherer) -> bool:
        """See `ReadAhead`."""
        pieces = self._pieces(message)
        size_bytes = sum(piece.size_bytes for piece in pieces)
        with self._lock:
            most_bytes = max(self._budget.share_bytes, 2 * size_bytes)
            if self._closed or self._held_bytes + size_bytes > most_bytes:
                return False
            if not self._budget.take(size_bytes):
                return False
            self._held_bytes += size_bytes
            self._fetches[id(message)] = _Fetch(parts=self._submit(pieces), size_bytes=size_bytes)
        return True

    def borrow(
        self, message: MessagePlan, gatherer: Gatherer, borrower: Borrower, now_ns: int
    ) -> npt.NDArray[np.uint8] | None:
        """See `ReadAhead`. There is nothing to lend."""
        return None

    def read(self, message: MessagePlan, gatherer: Gatherer, out: npt.NDArray[np.uint8], now_ns: int) -> None:
        """See `ReadAhead`."""
        with self._lock:
            if self._closed:
                raise ClosedError("the stream is closed")
            fetch = self._fetches.pop(id(message), None)
        if fetch is None:
            fetch = _Fetch(parts=self._submit(self._pieces(message)), size_bytes=0)
        try:
            for piece, future in fetch.parts:
                data = np.frombuffer(memoryview(wait_for(future)), np.uint8)
                for at, into, length in piece.copies.tolist():
                    out[into : into + length] = data[at : at + length]
        finally:
            fetch.cancel()
            with self._lock:
                if not self._closed:
                    self._give_back(fetch.size_bytes)

    def _pieces(self, message: MessagePlan) -> list[Piece]:
        return pieces_of(message.file, message.starts, message.sizes, most_bytes=PIECE_BYTES)

    def _submit(self, pieces: Sequence[Piece]) -> "list[tuple[Piece, Future[Buffer]]]":
        bucket, table = self._bucket, self._table
        return [
            (piece, bucket.requests.submit(partial(bucket.read, table, piece.file, piece.start, piece.end)))
            for piece in pieces
        ]

    def _give_back(self, size_bytes: int) -> None:
        self._held_bytes -= size_bytes
        self._budget.give_back(size_bytes)

    def confirm(self, message: MessagePlan) -> None:
        """See `ReadAhead`. The tag of every answer was compared."""

    def close(self) -> None:
        """See `ReadAhead`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            dropped, self._fetches = self._fetches, {}
            self._give_back(self._held_bytes)
        self._budget.leave()
        for fetch in dropped.values():
            fetch.cancel()
