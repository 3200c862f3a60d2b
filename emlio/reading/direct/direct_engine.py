"""The engine of folders that are larger than memory: past the page cache, many reads at the disk at once.

A read is submitted as aligned pieces, which the kernel carries out while earlier messages are sent;
completing it copies its records out of them in the same call. What cannot be read this way is read
through the page cache, which then says what is wrong.
"""

import io
import logging
import time
import weakref
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from threading import RLock
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.clock import Clock
from emlio.errors import ClosedError, EmlioError
from emlio.index.dataset import Dataset
from emlio.native.disk import Batch, DiskQueue, Pieces, TransferError, join_ranges
from emlio.reading.buffers import AheadBudget
from emlio.reading.direct.direct_file import DirectFile
from emlio.reading.direct.kept_windows import FeedWindows, KeptWindows
from emlio.reading.engine import Reads
from emlio.reading.gather import Gatherer
from emlio.reading.message_planner import StreamFuture
from emlio.reading.page_cache import PageCacheEngine
from emlio.reading.ranges import RangeRead
from emlio.reading.sharing.shared_reads import SharedReads
from emlio.reading.sharing.shared_records import SharedMemory, SharedRecords
from emlio.store.opened.open_files import OpenFiles
from emlio.store.opened.slices import Borrower

__all__ = ["DirectEngine"]

_Bytes = npt.NDArray[np.uint8]

_LOG = logging.getLogger(__name__)

_GAP_BYTES: Final = 4096
"""The most bytes between two records that are read with them: another request costs as much."""

_AHEAD: Final = 4
"""Messages submitted ahead, so that the queue is full while one is copied and sent."""

_MOST_SAID: Final = 3
"""Errors of direct reading that are logged; each was then read through the page cache."""


class _Begun(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A read at the disk. `held` keeps its files open and its bytes counted; `read` its own id."""

    read: RangeRead
    batch: Batch
    pieces: Pieces
    held: ExitStack


class DirectEngine(PageCacheEngine):
    """See `ReadEngine`. What it cannot read directly it reads like the other one.

    Attributes:
        direct: the files, opened for direct reading.
        queue: the transfers of all feeds.
        budget: limits the memory of what is read ahead.
        pool: its memory.
        piece_bytes: the size of the largest transfer.
        windows: those of all feeds that are kept.
    """

    keeps_windows = True

    def __init__(
        self,
        dataset: Dataset,
        files: OpenFiles,
        direct: OpenFiles,
        queue: DiskQueue,
        budget: AheadBudget,
        piece_bytes: int,
        memory: SharedMemory | None = None,
    ) -> None:
        """See the class. The files and the queue are closed with this.

        Args:
            dataset: the dataset.
            files: its files, for what cannot be read directly.
            direct: see the class.
            queue: likewise.
            budget: likewise.
            piece_bytes: likewise.
            memory: keeps records that several jobs need; without it nothing is shared.
        """
        super().__init__(dataset, files)
        self.direct = direct
        self.queue = queue
        self.budget = budget
        self.pool = budget.pool
        self.piece_bytes = piece_bytes
        self.windows = KeptWindows(direct, queue, self.pool, budget)
        self._failures = 0
        self._cached_ns = 0
        self._shared: SharedRecords | None = None
        if memory is not None:
            self._shared = SharedRecords(dataset=dataset, memory=memory, waited_ns=self.waited_ns)

    @property
    def disk_bytes(self) -> int:
        """See `ReadEngine`."""
        return self.queue.asked_bytes

    @property
    def shared_bytes(self) -> int:
        """See `ReadEngine`."""
        return self._shared.hit_bytes if self._shared is not None else 0

    def reads(self) -> Reads:
        """See `ReadEngine`."""
        reads = DirectReads(self, super().reads())
        return SharedReads(reads, self._shared, self.pool) if self._shared is not None else reads

    @contextmanager
    def opened(self, number: int) -> Generator[io.RawIOBase]:
        """See `ReadEngine`."""
        with ExitStack() as held:

            def refused(error: TransferError) -> int:
                self.say(error)
                return held.enter_context(self.files.open(number))

            size_bytes = int(self.files.store.sizes[number])
            try:
                descriptor = held.enter_context(self.direct.open(number))
            except EmlioError:  # a file of another file system, or one that cannot be read in any way
                yield held.enter_context(super().opened(number))
            else:
                yield held.enter_context(DirectFile(descriptor, size_bytes, self.queue, self.pool, refused))
        self.files.confirm(np.array([number], np.int64))

    def waited_ns(self) -> int:
        """Return the time for which threads have waited for the disk, directly or through the page cache."""
        return self.queue.waited_ns() + self._cached_ns

    def read_cached(self, cached: Reads, read: RangeRead, gatherer: Gatherer, out: _Bytes, now_ns: int) -> None:
        """Complete a read through the page cache, where it cannot be read directly."""
        begun_ns = time.monotonic_ns()
        try:
            cached.complete(read, gatherer, out, now_ns)
        finally:
            self._cached_ns += time.monotonic_ns() - begun_ns

    def say(self, error: TransferError) -> None:
        """Log that a message is read through the page cache instead."""
        self._failures += 1
        if self._failures <= _MOST_SAID:
            _LOG.warning(
                "dataset %r: direct reading failed (%s), reading through the page cache instead%s",
                self.dataset.name,
                error.strerror,
                "; this is not logged any more" if self._failures == _MOST_SAID else "",
            )

    def close(self) -> None:
        """See `ReadEngine`."""
        self.queue.close()
        self.direct.close()
        if self._shared is not None:
            self._shared.close()
        super().close()


class DirectReads(Reads):
    """See `Reads`. Several threads may complete different reads."""

    def __init__(self, engine: DirectEngine, cached: Reads) -> None:
        self._engine = engine
        self._cached = cached
        self._begun: dict[int, _Begun] = {}
        self._windows = FeedWindows(engine.windows)
        self._closed = False
        # Reentrant: the garbage collector may drop a stream, which closes this, while it is held.
        self._lock = RLock()
        engine.budget.join()

    def foresee(self, stream: StreamFuture, clock: Clock) -> None:
        """See `Reads`."""
        self._windows.join((stream.plan.digest, stream.owned.tobytes()), stream.rank)

    def wants(self, planned: Sequence[RangeRead], gatherer: Gatherer) -> bool:
        """See `Reads`."""
        return len(planned) <= _AHEAD or self._windows.wants(planned)

    def keeps(self, read: RangeRead) -> bool:
        """See `Reads`. What was begun without its window is completed so."""
        return id(read) not in self._begun and self._windows.begin(read)

    def submit(self, read: RangeRead, gatherer: Gatherer) -> bool:
        """See `Reads`."""
        if self.keeps(read):
            return True
        begun = self._begin(read, ahead=True)
        if begun is None:
            return False
        with self._lock:
            if not self._closed:
                self._begun[id(read)] = begun
                return True
        self._drop(begun)
        return False

    def borrow(self, read: RangeRead, gatherer: Gatherer, borrower: Borrower, now_ns: int) -> _Bytes | None:
        """See `Reads`. What is lent is the memory that the disk filled."""
        if self.keeps(read):
            return None
        begun = self._take(read) or self._begin(read, ahead=False)
        if begun is None or not self._finish(begun, read, None, now_ns):
            return None
        start = int(begun.pieces.places[0])
        # Of a memoryview, since a slice of the array itself would not keep the memory.
        view = np.frombuffer(begun.batch.memory.data[start : start + read.size_bytes], np.uint8)
        weakref.finalize(view, borrower.released, read.size_bytes).atexit = False
        return view

    def complete(self, read: RangeRead, gatherer: Gatherer, out: _Bytes, now_ns: int) -> None:
        """See `Reads`."""
        begun = self._take(read)
        if begun is None and self._of_window(read, out, now_ns):
            return
        begun = begun or self._begin(read, ahead=False)
        if begun is None or not self._finish(begun, read, out, now_ns):
            self._engine.read_cached(self._cached, read, gatherer, out, now_ns)

    def _of_window(self, read: RangeRead, out: _Bytes, now_ns: int) -> bool:
        """Fill `out` from the read's window; return False if that is not kept."""
        try:
            return self._windows.complete(read, out, now_ns)
        except TransferError as error:
            self._engine.say(error)
            return False
        except OSError as error:
            raise ClosedError("the dataset is closed") from error

    def _take(self, read: RangeRead) -> _Begun | None:
        """Return the read at the disk; None if it was not begun."""
        with self._lock:
            if self._closed:
                raise ClosedError("the stream is closed")
            return self._begun.pop(id(read), None)

    def _begin(self, read: RangeRead, *, ahead: bool) -> _Begun | None:
        """Begin a read; return None if it cannot be read directly, or, ahead of its turn, must wait."""
        engine = self._engine
        with ExitStack() as stack:
            try:
                descriptors = stack.enter_context(engine.direct.open_all(read.file))
            except EmlioError:
                return None  # reading raises the error, after the messages before it
            pieces = join_ranges(
                descriptors, read.starts, read.sizes, gap_bytes=_GAP_BYTES, most_bytes=engine.piece_bytes
            )
            if ahead:
                counted = engine.pool.rounded(pieces.memory_bytes)
                if not engine.budget.take(counted):
                    return None
                stack.callback(engine.budget.give_back, counted)
            memory = engine.pool.take(pieces.memory_bytes, _ignore)
            batch = engine.queue.begin(pieces.files, pieces.starts, pieces.sizes, pieces.needed, pieces.at, memory)
            return _Begun(read=read, batch=batch, pieces=pieces, held=stack.pop_all())

    def _finish(self, begun: _Begun, read: RangeRead, out: _Bytes | None, now_ns: int) -> bool:
        """Wait for a read, and copy its records to `out`, if given; return False if the disk did not read it."""
        engine = self._engine
        with begun.held:
            try:
                engine.queue.finish(begun.batch, begun.pieces.places, read.sizes, out)
            except TransferError as error:
                engine.say(error)
                return False
            except OSError as error:
                raise ClosedError("the dataset is closed") from error
            # Files in use were compared when they were opened; their bytes are those that were indexed if they still are.
            engine.direct.check_used(read.file, now_ns)
        return True

    def _drop(self, begun: _Begun) -> None:
        with begun.held:
            self._engine.queue.drop(begun.batch)

    def close(self) -> None:
        """See `Reads`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            dropped, self._begun = self._begun, {}
        self._engine.budget.leave()
        self._cached.close()
        self._windows.close()
        for begun in dropped.values():
            self._drop(begun)


def _ignore(_: int) -> None:
    """Do nothing: memory ahead is counted by what is read into it."""
