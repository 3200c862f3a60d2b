"""The engine of folders: the kernel's page cache, which is asked ahead while the disk is what is waited for."""

import io
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Event

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from emlio.errors import CorruptRecordError
from emlio.index.dataset import Dataset
from emlio.reading.engine import ReadEngine, Reads
from emlio.reading.gather import Gatherer, ShortReadError
from emlio.reading.ranges import RangeRead
from emlio.store.opened.open_files import OpenFiles, Stuck, patiently
from emlio.store.opened.slices import Borrower

__all__ = ["PageCacheEngine"]


_AHEAD = 3
"""The number of messages requested ahead: two or three hide a disk's latency, more only fill the
cache."""


class PageCacheEngine(ReadEngine):
    """See `ReadEngine`.

    Attributes:
        files: the open files, closed with this.
    """

    def __init__(self, dataset: Dataset, files: OpenFiles) -> None:
        super().__init__(dataset)
        self.files = files

    def when_stuck(self, stuck: Stuck) -> None:
        """See `ReadEngine`."""
        self.files.on_stuck = stuck

    def reads(self) -> Reads:
        """See `ReadEngine`."""
        return PageCacheReads(self.dataset, self.files)

    def check(self, files: npt.NDArray[np.int64], now_ns: int) -> None:
        """See `ReadEngine`."""
        self.files.check(files, now_ns)

    def confirm(self, files: npt.NDArray[np.int64]) -> None:
        """See `ReadEngine`."""
        self.files.confirm(files)

    @contextmanager
    def opened(self, number: int) -> Generator[io.RawIOBase]:
        """See `ReadEngine`."""
        with self.files.open(number) as descriptor:
            yield PositionedFile(descriptor)
        self.files.confirm(np.array([number], np.int64))

    def check_paths(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """See `ReadEngine`."""
        self.files.check_paths(stopped)

    def idle(self) -> bool:
        """See `ReadEngine`."""
        return self.files.idle()

    def close(self) -> None:
        """See `ReadEngine`."""
        self.files.close()


class PageCacheReads(Reads):
    """See `Reads`. The kernel keeps what was requested, so nothing is held here.

    Reading is repeated for a while if the system has no descriptor or memory left.
    """

    def __init__(self, dataset: Dataset, files: OpenFiles) -> None:
        self._dataset = dataset
        self._files = files
        self._stopped = Event()

    def wants(self, planned: Sequence[RangeRead], gatherer: Gatherer) -> bool:
        """See `Reads`."""
        return gatherer.cold and len(planned) <= _AHEAD

    def submit(self, read: RangeRead, gatherer: Gatherer) -> bool:
        """See `Reads`."""
        if gatherer.cold:
            gatherer.advise(self._files, read)
        return gatherer.cold

    def borrow(
        self, read: RangeRead, gatherer: Gatherer, borrower: Borrower, now_ns: int
    ) -> npt.NDArray[np.uint8] | None:
        """See `Reads`. They must be under a lease, which nothing can shorten meanwhile."""
        return patiently(partial(self._borrow, read, gatherer, borrower, now_ns), self._stopped.wait)

    def _borrow(
        self, read: RangeRead, gatherer: Gatherer, borrower: Borrower, now_ns: int
    ) -> npt.NDArray[np.uint8] | None:
        self._files.check(read.file[:1], now_ns)
        start = int(read.starts[0])
        view = self._files.lend(int(read.file[0]), start, start + read.size_bytes, borrower)
        if view is not None:
            gatherer.look_at_disk()
        return view

    def complete(self, read: RangeRead, gatherer: Gatherer, out: npt.NDArray[np.uint8], now_ns: int) -> None:
        """See `Reads`."""
        patiently(partial(self._complete, read, gatherer, out, now_ns), self._stopped.wait)

    def _complete(self, read: RangeRead, gatherer: Gatherer, out: npt.NDArray[np.uint8], now_ns: int) -> None:
        self._files.check_used(read.file, now_ns)
        try:
            gatherer.read(self._files, read, out)
        except ShortReadError as short:
            raise self._cut_short(read, short.position) from short
        self._files.check_read(read.file, now_ns)

    def _cut_short(self, read: RangeRead, at: int) -> CorruptRecordError:
        """Return the error for a record that the file lacks or cannot deliver.

        Raises another error if the file has changed.
        """
        number, offset, record = int(read.file[at]), int(read.starts[at]), int(read.record[at])
        table = self._files.store.table
        with self._files.open(number) as descriptor:
            table.check_unchanged(number, os.fstat(descriptor))
        return CorruptRecordError(
            f"record {record} of {table.path(number)} cannot be read: it must have {int(read.sizes[at])} "
            f"bytes at offset {offset}",
            shard=self._dataset.shards[int(read.shard[at])].name,
            record=record,
            offset=offset,
        )

    def close(self) -> None:
        """See `Reads`."""
        self._stopped.set()


class PositionedFile(io.RawIOBase):
    """A file with a position of its own, on a descriptor that others use too and close."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._at: int = 0

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """See `io.RawIOBase`."""
        got = os.preadv(self._descriptor, [buffer], self._at)
        self._at += got
        return got

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See `io.RawIOBase`."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}.get(whence)
        if base is None:
            base = os.fstat(self._descriptor).st_size
        if base + offset < 0:
            raise ValueError(f"a position must not be negative, got {base + offset}")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """See `io.RawIOBase`."""
        return self._at
