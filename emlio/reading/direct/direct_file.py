"""A file that is read past the page cache, for what reads files and not ranges, such as the formats of groups."""

import os
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from emlio.native.disk import Batch, DiskQueue, Pieces, TransferError, join_ranges
from emlio.reading.buffers import BufferPool
from emlio.reading.page_cache import PositionedFile

__all__ = ["DirectFile"]

_Bytes = npt.NDArray[np.uint8]

_PIECE_BYTES: Final = 1 << 20
_FIRST_BYTES: Final = 64 << 10
"""Read at a new place: as much as a footer takes."""

_MOST_BYTES: Final = 8 << 20
"""Read at once; a longer read is answered in parts."""


class DirectFile(PositionedFile):
    """A file with a position of its own. Reads that follow each other are begun ahead.

    A part that the disk refuses is read through the page cache, which then says what is wrong.
    """

    def __init__(
        self,
        descriptor: int,
        size_bytes: int,
        queue: DiskQueue,
        pool: BufferPool,
        refused: Callable[[TransferError], int],
    ) -> None:
        """See the class.

        Args:
            descriptor: of the file, opened for direct reading.
            size_bytes: of the file.
            queue: carries out the reads.
            pool: the memory.
            refused: hears of an error; returns a descriptor for reading through the page cache.
        """
        super().__init__(descriptor)
        self._size_bytes = size_bytes
        self._queue = queue
        self._pool = pool
        self._refused = refused
        self._block: _Bytes = np.zeros(0, np.uint8)
        self._block_at: int = 0
        self._ahead: tuple[int, Batch, Pieces] | None = None

    def readinto(self, buffer: Buffer) -> int:
        """See `io.RawIOBase`. May read less than there is room for."""
        out = np.frombuffer(memoryview(buffer).cast("B"), np.uint8)[: max(self._size_bytes - self._at, 0)]
        if not len(out):
            return 0
        into = self._at - self._block_at
        if not 0 <= into < len(self._block):
            if len(out) >= _PIECE_BYTES:
                return self._moved(self._read_long(out[:_MOST_BYTES]))
            try:
                self._read_block()
            except TransferError as error:
                return self._moved(os.preadv(self._refused(error), [out.data], self._at))
            into = self._at - self._block_at
        part = self._block[into : into + len(out)]
        out[: len(part)] = part
        return self._moved(len(part))

    def _moved(self, got: int) -> int:
        self._at += got
        return got

    def _begin(self, start: int, size_bytes: int) -> tuple[Batch, Pieces]:
        one = np.array([[self._descriptor], [start], [min(size_bytes, self._size_bytes - start)]], np.int64)
        pieces = join_ranges(one[0], one[1], one[2], gap_bytes=0, most_bytes=_PIECE_BYTES)
        memory = self._pool.take(pieces.memory_bytes, _ignore)
        batch = self._queue.begin(pieces.files, pieces.starts, pieces.sizes, pieces.needed, pieces.at, memory)
        return batch, pieces

    def _read_long(self, out: _Bytes) -> int:
        batch, pieces = self._begin(self._at, len(out))
        try:
            self._queue.finish(batch, pieces.places, np.array([len(out)], np.int64), out)
        except TransferError as error:
            return os.preadv(self._refused(error), [out.data], self._at)
        return len(out)

    def _read_block(self) -> None:
        """Read the block at the position, and begin the next one if the file is read in order."""
        goes_on = self._at == self._block_at + len(self._block) > 0
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == self._at:
            _, batch, pieces = ahead
        else:
            if ahead is not None:
                self._queue.drop(ahead[1])
            batch, pieces = self._begin(self._at, _PIECE_BYTES if goes_on else _FIRST_BYTES)
        self._block = self._block[:0]
        self._queue.finish(batch)
        start = int(pieces.places[0])
        upto = int(pieces.at[-1] + pieces.needed[-1])
        # Of a memoryview, since a slice of the array itself would not keep the memory.
        self._block, self._block_at = np.frombuffer(batch.memory.data[start:upto], np.uint8), self._at
        end = self._at + len(self._block)
        if goes_on and end < self._size_bytes:
            self._ahead = (end, *self._begin(end, _PIECE_BYTES))
            self._queue.push()

    def close(self) -> None:
        """Drop what was begun ahead. The descriptor stays open."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._queue.drop(ahead[1])
        self._block = self._block[:0]
        super().close()


def _ignore(_: int) -> None:
    """Do nothing: a file has at most two blocks, or one long read."""
