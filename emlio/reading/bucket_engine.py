"""The engine of buckets, where every request waits for the network.

Many requests are under way at once: all those of a message, and those of the messages after it, as
far as the memory allows. Each answer says which object it is of, so a replaced one is found by
reading it.

Covers: requests ahead, memory of their answers, putting records in place. Does not cover: which
ranges are fetched (emlio.reading.pieces), single requests and retries (emlio.store.bucket).
"""

import io
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event, RLock
from typing import Final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from emlio.errors import ClosedError, DatasetError
from emlio.index.dataset import Dataset
from emlio.reading.ahead_budget import AheadBudget
from emlio.reading.gather import Gatherer
from emlio.reading.pieces import Piece, pieces_of
from emlio.reading.ranges import RangeRead
from emlio.store.bucket.bucket_store import BucketStore
from emlio.store.bucket.requests import PIECE_BYTES, wait_for
from emlio.store.opened.open_files import Stuck, nobody_waits
from emlio.store.opened.slices import Borrower

__all__ = ["BucketEngine"]

_MOST_MESSAGES: Final = 64
"""Messages requested ahead. The limit that counts is that in bytes; this one bounds the planning for
messages of few bytes."""

_LOOKED_AT: Final = 16
_LOOK_S: Final = 3.0
"""Objects looked at when a rank joins, and for how long: the rank waits for it. All are compared when
they are read, so a server that does not answer now is no reason to refuse the rank."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fetch:
    """The requests of one message; `size_bytes` are counted for their answers."""

    parts: Sequence[tuple[Piece, "Future[Buffer]"]]
    size_bytes: int

    def cancel(self) -> None:
        """Wait for no answer any more, and drop the requests that have not been sent."""
        for _, future in self.parts:
            future.cancel()


class BucketEngine:
    """See `ReadEngine`.

    Attributes:
        dataset: see `ReadEngine`.
        on_stuck: never called; see `ReadEngine`.
    """

    def __init__(self, dataset: Dataset, store: BucketStore, budget: AheadBudget) -> None:
        """See the class.

        Args:
            dataset: the dataset.
            store: its objects.
            budget: limits the bytes requested ahead.
        """
        self.dataset = dataset
        self.on_stuck: Stuck = nobody_waits
        self._store = store
        self._budget = budget
        self._closing = Event()

    def reads(self) -> "BucketReads":
        """See `ReadEngine`."""
        return BucketReads(self._store, self._budget)

    def check(self, files: npt.NDArray[np.int64], now_ns: int) -> None:
        """See `ReadEngine`."""

    def confirm(self, files: npt.NDArray[np.int64]) -> None:
        """See `ReadEngine`."""

    @contextmanager
    def opened(self, number: int) -> Generator[io.RawIOBase]:
        """See `ReadEngine`."""
        with self._store.reader(number) as file:
            yield file

    def check_paths(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """See `ReadEngine`."""
        count = len(self._store)
        step = -(-count // _LOOKED_AT)
        deadline_s = time.monotonic() + _LOOK_S
        looks = [
            self._store.bucket.requests.submit(partial(self._store.check, number)) for number in range(0, count, step)
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

    def idle(self) -> bool:
        """See `ReadEngine`. Nothing is lent."""
        return True

    def close(self) -> None:
        """See `ReadEngine`."""
        self._closing.set()


class BucketReads:
    """See `Reads`."""

    def __init__(self, store: BucketStore, budget: AheadBudget) -> None:
        self._store = store
        self._budget = budget
        self._fetches: dict[int, _Fetch] = {}
        self._held_bytes = 0
        self._closed = False
        # Reentrant: the garbage collector may drop a stream, which closes this, while it is held.
        self._lock = RLock()
        budget.join()

    def wants(self, planned: Sequence[RangeRead], gatherer: Gatherer) -> bool:
        """See `Reads`."""
        if len(planned) > _MOST_MESSAGES:
            return False
        # One ahead in any case: with very many streams a share is less than a message.
        return len(planned) == 1 or sum(read.size_bytes for read in planned) < self._budget.share_bytes

    def submit(self, read: RangeRead, gatherer: Gatherer) -> bool:
        """See `Reads`."""
        pieces = self._pieces(read)
        size_bytes = sum(piece.size_bytes for piece in pieces)
        with self._lock:
            most_bytes = max(self._budget.share_bytes, 2 * size_bytes)
            if self._closed or self._held_bytes + size_bytes > most_bytes:
                return False
            if not self._budget.take(size_bytes):
                return False
            self._held_bytes += size_bytes
            self._fetches[id(read)] = _Fetch(parts=self._submit(pieces), size_bytes=size_bytes)
        return True

    def borrow(
        self, read: RangeRead, gatherer: Gatherer, borrower: Borrower, now_ns: int
    ) -> npt.NDArray[np.uint8] | None:
        """See `Reads`. There is nothing to lend."""
        return None

    def complete(self, read: RangeRead, gatherer: Gatherer, out: npt.NDArray[np.uint8], now_ns: int) -> None:
        """See `Reads`."""
        with self._lock:
            if self._closed:
                raise ClosedError("the stream is closed")
            fetch = self._fetches.get(id(read))
            if fetch is None:
                fetch = self._fetches[id(read)] = _Fetch(parts=self._submit(self._pieces(read)), size_bytes=0)
        try:
            for piece, future in fetch.parts:
                data = np.frombuffer(memoryview(wait_for(future)), np.uint8)
                for at, into, length in piece.copies.tolist():
                    out[into : into + length] = data[at : at + length]
        finally:
            fetch.cancel()
            with self._lock:
                if not self._closed:
                    del self._fetches[id(read)]
                    self._give_back(fetch.size_bytes)

    def _pieces(self, read: RangeRead) -> list[Piece]:
        return pieces_of(read.file, read.starts, read.sizes, most_bytes=PIECE_BYTES)

    def _submit(self, pieces: Sequence[Piece]) -> "list[tuple[Piece, Future[Buffer]]]":
        store = self._store
        return [
            (piece, store.bucket.requests.submit(partial(store.fetch, piece.file, piece.start, piece.end)))
            for piece in pieces
        ]

    def _give_back(self, size_bytes: int) -> None:
        self._held_bytes -= size_bytes
        self._budget.give_back(size_bytes)

    def close(self) -> None:
        """See `Reads`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            dropped, self._fetches = self._fetches, {}
            self._give_back(self._held_bytes)
        self._budget.leave()
        for fetch in dropped.values():
            fetch.cancel()
