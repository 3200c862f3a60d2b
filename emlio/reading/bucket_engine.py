"""The engine of buckets, where every request waits for the network.

Many requests are under way at once: all those of a message, and those of the messages after it, as
far as the memory allows. Each answer says which object it is of, so a replaced one is found by
reading it.
"""

import io
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from threading import Event, RLock
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from emlio.errors import ClosedError, DatasetError
from emlio.index.dataset import Dataset
from emlio.reading.buffers import AheadBudget
from emlio.reading.engine import ReadEngine, Reads
from emlio.reading.gather import Gatherer
from emlio.reading.ranges import RangeRead, run_starts
from emlio.store.bucket.bucket_store import BucketStore
from emlio.store.bucket.requests import PIECE_BYTES, wait_for

__all__ = ["BucketEngine", "pieces_of"]

_GAP_BYTES = 256 << 10
"""The most bytes between two records that are fetched together. They take 3 ms at the 80 MB/s of a
connection, a tenth of the time of another request, and at most a few times the memory."""

_MOST_WASTED = 2
"""A piece holds at most this many times the bytes that are needed of it, with gaps."""


class Piece(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One range to fetch, and where its parts belong.

    Attributes:
        file: the file's number.
        start: its first byte there.
        end: the byte after its last one.
        copies: (n, 3) for each part its place in the range, its place in the message, its length.
    """

    file: int
    start: int
    end: int
    copies: npt.NDArray[np.int64]

    @property
    def size_bytes(self) -> int:
        """The bytes fetched."""
        return self.end - self.start


def pieces_of(
    file: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    *,
    most_bytes: int,
) -> list[Piece]:
    """Return the requests that fetch ranges which follow each other in a message.

    Records that lie close together are fetched with the bytes between them. Long stretches are divided,
    so that several connections share them.

    Args:
        file: (n,) the file of each range.
        starts: (n,) the byte at which each begins.
        sizes: (n,) their lengths.
        most_bytes: the size of the largest piece.
    """
    filled = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=filled[1:])
    first = run_starts(file, starts, sizes)
    at, lengths = filled[first], np.diff(np.append(filled[first], filled[-1]))
    some = lengths > 0
    runs = (file[first][some], starts[first][some], at[some], lengths[some])
    order = np.lexsort((runs[1], runs[0]))
    pieces: list[Piece] = []
    held: list[tuple[int, int, int]] = []  # (byte in the file, byte in the message, length)
    of, begin, end, needed = -1, 0, 0, 0
    for number in order.tolist():
        this, start, into, length = (int(column[number]) for column in runs)
        upto = max(end, start + length)
        joins = (
            this == of
            and start - end <= _GAP_BYTES
            and upto - begin <= most_bytes
            and upto - begin <= _MOST_WASTED * (needed + length) + _GAP_BYTES
        )
        if not joins and held:
            pieces += _cut(of, begin, end, held, most_bytes)
            held = []
        if not joins:
            of, begin, end, needed = this, start, start, 0
            upto = start + length
        held.append((start, into, length))
        end, needed = upto, needed + length
    if held:
        pieces += _cut(of, begin, end, held, most_bytes)
    return pieces


def _cut(file: int, begin: int, end: int, held: list[tuple[int, int, int]], most_bytes: int) -> list[Piece]:
    """Return one piece, or several if a single run is too long for one."""
    if end - begin <= most_bytes:
        copies = np.array([(start - begin, into, length) for start, into, length in held], np.int64)
        return [Piece(file=file, start=begin, end=end, copies=copies)]
    ((start, into, length),) = held  # only a run that is alone is longer
    return [
        Piece(
            file=file,
            start=at,
            end=min(at + most_bytes, start + length),
            copies=np.array([(0, into + at - start, min(most_bytes, start + length - at))], np.int64),
        )
        for at in range(start, start + length, most_bytes)
    ]


_MOST_MESSAGES: Final = 64
"""Messages requested ahead. The limit that counts is that in bytes; this one bounds the planning for
messages of few bytes."""

_LOOKED_AT: Final = 16
_LOOK_S: Final = 3.0
"""Objects looked at when a rank joins, and for how long: the rank waits for it. All are compared when
they are read, so a server that does not answer now is no reason to refuse the rank."""


class _Fetch(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The requests of one message; `size_bytes` are counted for their answers."""

    parts: Sequence[tuple[Piece, "Future[Buffer]"]]
    size_bytes: int

    def cancel(self) -> None:
        """Wait for no answer any more, and drop the requests that have not been sent."""
        for _, future in self.parts:
            future.cancel()


class BucketEngine(ReadEngine):
    """See `ReadEngine`. Nothing is lent."""

    def __init__(self, dataset: Dataset, store: BucketStore, budget: AheadBudget) -> None:
        """See the class.

        Args:
            dataset: the dataset.
            store: its objects.
            budget: limits the bytes requested ahead.
        """
        super().__init__(dataset)
        self._store = store
        self._budget = budget
        self._closing = Event()

    def reads(self) -> "BucketReads":
        """See `ReadEngine`."""
        return BucketReads(self._store, self._budget)

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
        looks = [self._store.requests.submit(partial(self._store.check, number)) for number in range(0, count, step)]
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

    def close(self) -> None:
        """See `ReadEngine`."""
        self._closing.set()


class BucketReads(Reads):
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
            (piece, store.requests.submit(partial(store.fetch, piece.file, piece.start, piece.end))) for piece in pieces
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
