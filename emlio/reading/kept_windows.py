"""The windows of a block order: their blocks are read once, as long pieces, and kept until their records were sent.

A window that does not fit into its part of the memory is not kept; its records are then read message by message.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from threading import RLock
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.errors import EmlioError
from emlio.native.disk import Batch, DiskQueue, Pieces, join_ranges, pack_ranges
from emlio.reading.buffers import AheadBudget, BufferPool
from emlio.reading.ranges import RangeRead, Window
from emlio.store.opened.open_files import OpenFiles

__all__ = ["KeptWindows"]

_PIECE_BYTES: Final = 1 << 20
_GAP_BYTES: Final = 16 << 10
"""The most bytes between two records that are read with them: a disk that reads 1 GB/s carries out 60,000 requests a second."""

_MOST_FILES: Final = 128
"""Files that are held open while a window is read. More are small files, which are not joined."""

_WINDOWS: Final = 2
"""The one that is sent, and the next one."""

_MOST_MESSAGES: Final = 1024


@dataclass(slots=True, kw_only=True, eq=False)
class _Kept:
    """A window. `batch` until it was waited for; `files` are held until then."""

    window: Window
    pieces: Pieces
    memory: npt.NDArray[np.uint8]
    batch: Batch | None
    files: ExitStack


class KeptWindows:
    """The windows of one feed. `close` may be called by any thread, the others by one at a time."""

    def __init__(self, files: OpenFiles, queue: DiskQueue, pool: BufferPool, budget: AheadBudget) -> None:
        """See the class.

        Args:
            files: opened for direct reading.
            queue: carries out the reads.
            pool: the memory.
            budget: counts it; this feed has joined it.
        """
        self._files = files
        self._queue = queue
        self._pool = pool
        self._budget = budget
        self._kept: dict[int, _Kept] = {}
        self._refused: dict[int, Window] = {}
        self._closed = False
        # Reentrant: the garbage collector may drop a stream, which closes this, while it is held.
        self._lock = RLock()

    def wants(self, planned: Sequence[RangeRead]) -> bool:
        """Return whether one more read is to be planned: until one is of the next window, which is then read ahead."""
        last = planned[-1].window
        return last is planned[0].window and id(last) in self._kept and len(planned) < _MOST_MESSAGES

    def begin(self, read: RangeRead) -> bool:
        """Begin to read the window of a read, if that was not done; return whether it is kept."""
        window = read.window
        if window is None:
            return False
        with self._lock:
            if self._closed or id(window) in self._refused:
                return False
            if id(window) not in self._kept:
                kept = self._begin(window)
                if kept is None:
                    self._refuse(window)
                    return False
                self._kept[id(window)] = kept
        self._queue.push()
        return True

    def _begin(self, window: Window) -> _Kept | None:
        """Return the window, or None if it cannot be kept, or its records do not lie close to each other."""
        if int(window.sizes.sum()) > self._budget.share_bytes // _WINDOWS:
            return None
        if len(np.unique(window.file)) > _MOST_FILES:
            return None
        with ExitStack() as files:
            try:
                descriptors = files.enter_context(self._files.open_all(window.file))
            except EmlioError:
                return None  # reading raises the error, after the messages before it
            pieces = join_ranges(
                descriptors, window.starts, window.sizes, gap_bytes=_GAP_BYTES, most_bytes=_PIECE_BYTES
            )
            if pieces.memory_bytes > self._budget.share_bytes // _WINDOWS or not self._budget.take(pieces.memory_bytes):
                return None
            memory = self._pool.take(pieces.memory_bytes, self._budget.give_back)
            batch = self._queue.begin(pieces.files, pieces.starts, pieces.sizes, pieces.needed, pieces.at, memory)
            return _Kept(window=window, pieces=pieces, memory=memory, batch=batch, files=files.pop_all())

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
        window = read.window
        with self._lock:
            kept = self._kept.get(id(window))
            if kept is None or window is None:
                return False
            batch, kept.batch = kept.batch, None
        self._queue.push()  # the next window
        if batch is not None:
            with kept.files:
                try:
                    self._queue.finish(batch)
                    self._files.check_used(window.file, now_ns)
                except (OSError, EmlioError):
                    self._forget(window)
                    self._refuse(window)
                    raise
        self._files.check_used(read.file, now_ns)
        first, end = read.window_place, read.window_place + read.count
        pack_ranges(kept.memory, kept.pieces.places[first:end], read.sizes, out)
        if end == len(window.sizes):
            self._forget(window)
        return True

    def _forget(self, window: Window) -> None:
        with self._lock:
            self._kept.pop(id(window), None)

    def close(self) -> None:
        """Drop everything. Closing again does nothing."""
        with self._lock:
            self._closed = True
            dropped, self._kept = self._kept, {}
        for kept in dropped.values():
            if kept.batch is not None:  # or a thread waits for it, with its files
                with kept.files:
                    self._queue.drop(kept.batch)
