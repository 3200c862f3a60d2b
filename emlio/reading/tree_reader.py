"""Reading ranges of the files below a dataset's folder, as they were when the folder was walked."""

from functools import partial
from threading import Event

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.plain import checksums_of
from emlio.reading.buffers import BufferPool
from emlio.reading.gather import Gatherer, ShortReadError
from emlio.reading.ranges import RangeRead
from emlio.store.opened.open_files import OpenFiles, patiently
from emlio.store.tree_walk import WalkedFolder
from emlio.wire.limits import MAX_CONTROL_BYTES, RECORD_BYTES_PER_REPLY

__all__ = ["FoundRanges", "TreeReader", "answer_memory"]

_Ints = npt.NDArray[np.int64]

_PIECE_BYTES = MAX_CONTROL_BYTES
_KEPT_BYTES = 16 * _PIECE_BYTES
"""Memory that is mapped anew costs as much as reading into it: as much is kept as may be under way to a client."""


class FoundRanges(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The first bytes of some ranges.

    Attributes:
        memory: the bytes, one range after the other, behind the room that was asked for.
        payload: the bytes alone.
        sizes: the bytes of each range, the last of which may have more.
        crcs: the CRC32C of these bytes.
    """

    memory: memoryview
    payload: memoryview
    sizes: _Ints
    crcs: npt.NDArray[np.uint32]


def answer_memory() -> BufferPool:
    """Return memory for the answers of all folders."""
    return BufferPool(_PIECE_BYTES, _KEPT_BYTES)


class TreeReader:
    """Reads files of a walked folder. Thread-safe.

    A file is the one in the tree if it has its inode, size and time of change after it was read. One that an answer can hold
    is opened for each read: that costs less than to know which are open. Of others a descriptor is kept for the next reads.

    Attributes:
        tree: the folder's entries.
    """

    def __init__(self, walked: WalkedFolder, memory: BufferPool) -> None:
        """Read into such memory: see `answer_memory`."""
        self.tree = walked.tree
        self._files = OpenFiles(walked.store, read_whole=True)
        self._memory = memory
        self._closed = Event()

    def read(self, files: _Ints, starts: _Ints, sizes: _Ints, most_bytes: int, *, room_bytes: int = 0) -> FoundRanges:
        """Read ranges, which lie in files of the tree: as many bytes as fit.

        A range that cannot be read ends the answer before it; as the first one it is the error.

        Args:
            files: (n,) the number of each range's file.
            starts: (n,) where it begins.
            sizes: (n,) its length, not 0.
            most_bytes: the most bytes to read.
            room_bytes: room in memory before them.

        Raises:
            DatasetError: the first range cannot be read, or its file is not the one in the tree.
        """
        ends = np.cumsum(sizes)
        count = min(int(np.searchsorted(ends, most_bytes)) + 1, len(ends))
        cut = sizes[:count].copy()
        cut[-1] = min(int(cut[-1]), most_bytes - int(ends[count - 2] if count > 1 else 0))
        memory = self._memory.take(room_bytes + int(cut.sum()), _nothing_else).data
        payload = memory[room_bytes:]
        try:
            self._read(files[:count], starts[:count], cut, payload)
        except DatasetError:
            if len(cut) == 1:
                raise
            cut = cut[: self._read_good(files, starts, cut, payload)]
            memory = memory[: room_bytes + int(cut.sum())]
            payload = memory[room_bytes:]
        return FoundRanges(memory=memory, payload=payload, sizes=cut, crcs=checksums_of(payload, cut))

    def _read_good(self, files: _Ints, starts: _Ints, sizes: _Ints, payload: memoryview) -> int:
        """Read the ranges before the first one that cannot be read; return how many there are."""
        at = 0
        for place, size in enumerate(sizes.tolist()):
            one = slice(place, place + 1)
            try:
                self._read(files[one], starts[one], sizes[one], payload[at : at + size])
            except DatasetError:
                if not place:
                    raise
                return place
            at += size
        return len(sizes)

    def _read(self, files: _Ints, starts: _Ints, sizes: _Ints, payload: memoryview) -> None:
        out = np.frombuffer(payload, np.uint8)
        if (self.tree.sizes[files] <= RECORD_BYTES_PER_REPLY).all():
            count = self._files.read_once(files, starts, sizes, out)
            files, starts, sizes, out = files[count:], starts[count:], sizes[count:], out[int(sizes[:count].sum()) :]
            if not len(files):
                return
        wanted = RangeRead(shard=files, record=files, file=files, starts=starts, sizes=sizes, size_bytes=out.nbytes)
        try:
            # None are kept that could be closed for them: others must have let descriptors go.
            patiently(partial(Gatherer().read, self._files, wanted, out), self._closed.wait)
        except ShortReadError as short:
            place = short.position
            self._files.confirm(files[place : place + 1])
            raise DatasetError(f"{self._files.store.path(int(files[place]))}: has become shorter") from short
        self._files.confirm(files)  # now: what was read before a change is found by that, too

    def close(self) -> None:
        """Close all files; what a thread is still using is closed when it is done."""
        self._closed.set()
        self._files.close()


def _nothing_else(_: int) -> None:
    """Do nothing: the pool alone needs to know what was returned."""
