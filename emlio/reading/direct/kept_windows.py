"""The windows of block orders: their blocks are read once, as long pieces, and kept until their records were sent.

The ranks of a job take a window at about the same time, so it is read for all of them that are here.
One that stays behind does not hold the others up: its windows are dropped first, and it reads them
again. A window that does not fit into its part of the memory is not kept; its records are then read
message by message.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from threading import Lock, RLock
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import EmlioError
from emlio.native.disk import Batch, DiskQueue, Pieces, join_ranges, pack_ranges
from emlio.reading.buffers import AheadBudget, BufferPool
from emlio.reading.ranges import RangeRead, Window, WindowRecords
from emlio.reading.yielding_lock import YieldingLock
from emlio.store.opened.open_files import OpenFiles

__all__ = ["FeedWindows", "KeptWindows"]

_PIECE_BYTES: Final = 1 << 20
_GAP_BYTES: Final = 16 << 10
"""The most bytes between two records that are read with them: a disk that reads 1 GB/s carries out 60,000 requests a second."""

_MOST_FILES: Final = 128
"""Files that are held open while a window is read. More are small files, which are not joined."""

_WINDOWS: Final = 2
"""The one that is sent, and the next one. With several ranks one more, for they do not go on at the same moment."""

_MOST_WAITING: Final = 4
"""Windows of a job that are kept for ranks that have not come to them."""

_MOST_MESSAGES: Final = 1024


class _Kept(msgspec.Struct, kw_only=True, eq=False):
    """A window in memory.

    Attributes:
        number: see `Window`.
        ranks: those that have not come to it yet.
        users: the feeds that read it.
        ids: its records, ascending.
        places: where each lies in the memory.
        file: the files that hold them.
        pieces: what is read.
        memory: where to.
        batch: the reads, until they were waited for.
        files: are held until then.
        failed: whether it could not be read.
        lock: is held while it is waited for.
    """

    number: tuple[int, int]
    ranks: set[int]
    users: int = 0
    ids: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    file: npt.NDArray[np.int64]
    pieces: Pieces
    memory: npt.NDArray[np.uint8]
    batch: Batch | None
    files: ExitStack
    failed: bool = False
    lock: Lock = msgspec.field(default_factory=Lock)

    def places_of(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """Return where records lie; None if one is missing."""
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return self.places[at] if (self.ids[at] == ids).all() else None


class _Job(msgspec.Struct, kw_only=True, eq=False):
    """The ranks of one job that are here, each with the number of its last window; and the windows that wait for some."""

    ranks: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict[int, tuple[int, int]])
    waiting: list[_Kept] = msgspec.field(default_factory=list[_Kept])


_BEFORE_ALL: Final = (-1, -1)


class KeptWindows:
    """The windows of all feeds of a dataset. Thread-safe."""

    def __init__(self, files: OpenFiles, queue: DiskQueue, pool: BufferPool, budget: AheadBudget) -> None:
        """See the class.

        Args:
            files: opened for direct reading.
            queue: carries out the reads.
            pool: the memory.
            budget: counts it; each feed has joined it.
        """
        self.files = files
        self.queue = queue
        self._pool = pool
        self._budget = budget
        self._jobs: dict[object, _Job] = {}
        self._lock = YieldingLock()

    def join(self, job: object, rank: int) -> object:
        """Let a rank take part in a job; return the job, another one if that has the rank already."""
        with self._lock:
            while rank in self._jobs.setdefault(job, _Job()).ranks:
                job = object()
            self._jobs[job].ranks[rank] = _BEFORE_ALL
        return job

    def leave(self, job: object, rank: int, used: Sequence[_Kept]) -> None:
        """Let it take part no longer, and use these windows no longer. Does not wait."""

        def action() -> None:
            here = self._jobs[job]
            del here.ranks[rank]
            self._came(here, rank, None)
            if not here.ranks:
                del self._jobs[job]
            for kept in used:
                self._let_go(kept)

        self._lock.later(action)

    def take(self, job: object, rank: int, window: Window) -> tuple[_Kept, npt.NDArray[np.int64]] | None:
        """Begin to read a window, if no rank did, and use it; return it and the places of the rank's records.

        None if it cannot be kept, or its records do not lie close to each other.
        """
        with self._lock:
            here = self._jobs[job]
            here.ranks[rank] = window.number
            found = next((kept for kept in here.waiting if kept.number == window.number and rank in kept.ranks), None)
            places = None if found is None else found.places_of(window.own.ids)
            if found is None or places is None or found.failed:
                found = self._begin(here, rank, window)
                places = None if found is None else found.places_of(window.own.ids)
            if found is not None:
                found.users += 1
            self._came(here, rank, window.number)
            return None if found is None or places is None else (found, places)

    def _came(self, job: _Job, rank: int, number: tuple[int, int] | None) -> None:
        """Let no window wait for a rank that has come to a later one, or to none any more."""
        for kept in tuple(job.waiting):
            if number is None or kept.number <= number:
                kept.ranks.discard(rank)
            if not kept.ranks:
                self._drop(job, kept)

    def _drop(self, job: _Job, kept: _Kept) -> None:
        """Keep a window no longer for those that have not come."""
        if kept in job.waiting:
            job.waiting.remove(kept)
        kept.ranks.clear()
        self._end(kept)

    def reads_of(self, kept: _Kept) -> Batch | None:
        """Return what must be waited for, to one thread: another one gets None, as if a window is dropped meanwhile."""
        with self._lock:
            batch, kept.batch = kept.batch, None
            return batch

    def let_go(self, kept: _Kept) -> None:
        """Use a window no longer."""
        with self._lock:
            self._let_go(kept)

    def _let_go(self, kept: _Kept) -> None:
        kept.users -= 1
        self._end(kept)

    def _end(self, kept: _Kept) -> None:
        if kept.users or kept.ranks:
            return
        batch, kept.batch = kept.batch, None
        if batch is not None:
            with kept.files:
                self.queue.drop(batch)

    def _begin(self, job: _Job, rank: int, window: Window) -> _Kept | None:
        served = {other for kept in job.waiting if kept.number == window.number for other in kept.ranks}
        ranks = {other for other, at in job.ranks.items() if at < window.number} - served | {rank}
        if len(ranks) > 1:
            kept = self._read(job, window, window.of(ranks), ranks)
            if kept is not None and kept.places_of(window.own.ids) is not None:
                return kept
            if kept is not None:
                self._drop(job, kept)  # at an epoch's end a rank may take what is another one's in full steps
        return self._read(job, window, window.own, {rank})

    def _read(self, job: _Job, window: Window, records: WindowRecords, ranks: set[int]) -> _Kept | None:
        most_bytes = self._budget.share_bytes * len(ranks) // (_WINDOWS + (len(ranks) > 1))
        if not len(records.ids) or int(records.sizes.sum()) > most_bytes or len(np.unique(records.file)) > _MOST_FILES:
            return None
        with ExitStack() as files:
            try:
                descriptors = files.enter_context(self.files.open_all(records.file))
            except EmlioError:
                return None  # reading raises the error, after the messages before it
            pieces = join_ranges(
                descriptors, records.starts, records.sizes, gap_bytes=_GAP_BYTES, most_bytes=_PIECE_BYTES
            )
            counted = self._pool.rounded(pieces.memory_bytes)
            if counted > most_bytes:
                return None
            while len(job.waiting) >= _MOST_WAITING or not self._budget.take(counted):
                if not job.waiting:
                    return None
                self._drop(job, min(job.waiting, key=lambda kept: kept.number))
            budget = self._budget  # which the memory may refer to, but not to what holds the memory
            try:
                memory = self._pool.take(pieces.memory_bytes, lambda _: budget.give_back(counted))
            except MemoryError:
                budget.give_back(counted)
                raise
            order = np.argsort(records.ids)
            kept = _Kept(
                number=window.number,
                ranks=ranks,
                ids=records.ids[order],
                places=pieces.places[order],
                file=records.file,
                pieces=pieces,
                memory=memory,
                batch=self.queue.begin(pieces.files, pieces.starts, pieces.sizes, pieces.needed, pieces.at, memory),
                files=files.pop_all(),
            )
            job.waiting.append(kept)
            return kept


class FeedWindows:
    """The windows of one feed. `close` may be called by any thread, the others by one at a time."""

    def __init__(self, kept: KeptWindows) -> None:
        self._all = kept
        self._job: object = None
        self._rank = 0
        self._used: dict[int, tuple[Window, _Kept, npt.NDArray[np.int64]]] = {}
        self._refused: dict[int, Window] = {}
        self._closed = False
        # Reentrant: the garbage collector may drop the stream, which closes this, while it is held.
        self._lock = RLock()

    def join(self, job: object, rank: int) -> None:
        """Let the feed share windows with the other ranks of its job; called once, before the others."""
        self._job, self._rank = self._all.join(job, rank), rank

    def wants(self, planned: Sequence[RangeRead]) -> bool:
        """Return whether one more read is to be planned: until one is of the next window, which is then read ahead."""
        last = planned[-1].window
        return last is planned[0].window and id(last) in self._used and len(planned) < _MOST_MESSAGES

    def begin(self, read: RangeRead) -> bool:
        """Begin to read the window of a read, if that was not done; return whether it is kept."""
        window = read.window
        if window is None or self._job is None:
            return False
        with self._lock:
            if self._closed or id(window) in self._refused:
                return False
            if id(window) not in self._used:
                taken = self._all.take(self._job, self._rank, window)
                if taken is None:
                    self._refuse(window)
                    return False
                self._used[id(window)] = window, *taken
        self._all.queue.push()
        return True

    def _refuse(self, window: Window) -> None:
        self._refused[id(window)] = window
        while len(self._refused) > _WINDOWS:
            del self._refused[next(iter(self._refused))]

    def complete(self, read: RangeRead, out: npt.NDArray[np.uint8], now_ns: int) -> bool:
        """Fill `out` with the ranges of a read, if its window is kept; return whether that was done.

        Raises:
            TransferError: the window cannot be read; it is kept no longer.
            DatasetError: a file is not the one that was indexed.
            OSError: the queue was closed.
        """
        with self._lock:
            used = self._used.get(id(read.window))
        if used is None:
            return False
        window, kept, places = used
        self._all.queue.push()  # the next window
        try:
            with kept.lock:
                self._wait(kept, now_ns)
        except OSError:
            self._forget(window)
            self._refuse(window)
            raise
        if kept.failed:
            self._forget(window)
            self._refuse(window)
            return False
        self._all.files.check_used(read.file, now_ns)
        first, end = read.window_place, read.window_place + read.count
        pack_ranges(kept.memory, places[first:end], read.sizes, out)
        if end == len(places):
            self._forget(window)
        return True

    def _wait(self, kept: _Kept, now_ns: int) -> None:
        """Wait for a window's reads. With its lock, by which other ranks wait, and then hear whether they failed."""
        batch = self._all.reads_of(kept) if kept.batch is not None else None
        if batch is None:
            return
        with kept.files:
            try:
                self._all.queue.finish(batch)
                self._all.files.check_used(kept.file, now_ns)
            except OSError:
                kept.failed = True
                raise
            except EmlioError:
                kept.failed = True  # reading record by record raises the error of those that are concerned

    def _forget(self, window: Window) -> None:
        with self._lock:
            used = self._used.pop(id(window), None)
            if used is not None:
                self._all.let_go(used[1])

    def close(self) -> None:
        """Drop everything. Closing again does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            dropped, self._used = self._used, {}
        if self._job is not None:
            self._all.leave(self._job, self._rank, [kept for _, kept, _ in dropped.values()])
