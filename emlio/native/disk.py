"""A queue of transfers that the kernel carries out beside this process, in the C library.

Nothing here opens files or knows records. A batch's memory stays until the batch is finished or the queue is closed.
"""

import ctypes
import errno
import os
from dataclasses import dataclass
from threading import Condition
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.native.library import guard_library, library_for

__all__ = [
    "ALIGNMENT",
    "ENDED_EARLY",
    "Batch",
    "DiskQueue",
    "Pieces",
    "TransferError",
    "copy_each",
    "direct_alignment",
    "join_ranges",
    "pack_ranges",
]

_Ints = npt.NDArray[np.int64]

ALIGNMENT: Final = 4096
"""Offsets, sizes and memory are multiples of it: of every disk's own, and of a page."""

ENDED_EARLY: Final = -1
"""A file has fewer bytes than were asked for."""

_STILL_BEGUN: Final = -1
"""Stands for the place of a failed transfer while a batch is not finished."""

_KINDS: Final = {"io_uring": 1, "aio": 2}


class TransferError(OSError):
    """A transfer failed. `errno` is `ENDED_EARLY` if the file has fewer bytes; `place` is its number in the batch."""

    def __init__(self, number: int, place: int) -> None:
        super().__init__(number, "the file ended early" if number == ENDED_EARLY else os.strerror(number))
        self.place = place


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pieces:
    """Aligned pieces of files, shapes (n,), and where the ranges lie in the memory that they are read into.

    Attributes:
        files: the file of each piece.
        starts: its first byte there.
        sizes: how many are read.
        needed: how many of these the file must have.
        at: its place in memory.
        places: (ranges,) the place of each range.
        memory_bytes: what all pieces take.
    """

    files: _Ints
    starts: _Ints
    sizes: _Ints
    needed: _Ints
    at: _Ints
    places: _Ints
    memory_bytes: int


def join_ranges(files: _Ints, starts: _Ints, sizes: _Ints, *, gap_bytes: int, most_bytes: int) -> Pieces:
    """Return the pieces to read for ranges of files, given in any order.

    Args:
        files: (n,) the file of each range.
        starts: (n,) its first byte.
        sizes: (n,) its length.
        gap_bytes: the most bytes between two ranges that are read with them.
        most_bytes: the size of the largest piece, a multiple of `ALIGNMENT`.

    Raises:
        OSError: the C library is not used.
    """
    library = _used(library_for(0))
    ranges = len(sizes)
    most_pieces = ranges + (int(sizes.sum()) + ranges * (gap_bytes + 2 * ALIGNMENT)) // most_bytes + 1
    made = np.empty((5, most_pieces), np.int64)
    places = np.empty(ranges + 1, np.int64)  # and the size of the memory
    given = [np.ascontiguousarray(each, np.int64) for each in (files, starts, sizes)]
    count = int(
        library.emlio_join_ranges(
            *(each.ctypes.data for each in given),
            ranges,
            ALIGNMENT,
            gap_bytes,
            most_bytes,
            most_pieces,
            *(column.ctypes.data for column in made),
            places.ctypes.data,
            places.ctypes.data + 8 * ranges,
        )
    )
    if count < 0:
        raise ValueError(f"ranges must begin and have lengths from 0 on, got {starts!r} and {sizes!r}")
    of, begin, size, needed, at = made[:, :count]
    return Pieces(
        files=of,
        starts=begin,
        sizes=size,
        needed=needed,
        at=at,
        places=places[:ranges],
        memory_bytes=int(places[ranges]),
    )


def pack_ranges(memory: npt.NDArray[np.uint8], places: _Ints, sizes: _Ints, out: npt.NDArray[np.uint8]) -> None:
    """Copy ranges of memory that holds them to `out`, one after the other.

    Args:
        memory: contiguous.
        places: (n,) where each range lies in it.
        sizes: (n,) its length.
        out: the destination, contiguous and as large as all ranges.

    Raises:
        ValueError: a range does not lie in the memory, or `out` is too small.
    """
    if len(sizes) and (int(places.min()) < 0 or int((places + sizes).max()) > memory.nbytes):
        raise ValueError(f"ranges must lie in the memory of {memory.nbytes} bytes, got {places!r} and {sizes!r}")
    if out.nbytes < int(sizes.sum()) or not out.flags.c_contiguous:
        raise ValueError(f"out must be contiguous and have {int(sizes.sum())} bytes, has {out.nbytes}")
    at, size = np.ascontiguousarray(places, np.int64), np.ascontiguousarray(sizes, np.int64)
    library = _used(library_for(out.nbytes))
    library.emlio_disk_pack(memory.ctypes.data, at.ctypes.data, size.ctypes.data, len(at), out.ctypes.data)


def copy_each(sources: _Ints, targets: _Ints, sizes: _Ints) -> None:
    """Copy stretches of memory from address to address, in one call without the interpreter's lock."""
    columns = [np.ascontiguousarray(each, np.int64) for each in (sources, targets, sizes)]
    _used(guard_library()).emlio_copy_each(*(each.ctypes.data for each in columns), len(sizes))


def direct_alignment(descriptor: int) -> int:
    """Return what direct reads of a file must be aligned to; 0 if its file system offers none, or the kernel does not tell.

    Raises:
        OSError: the system refuses to tell, or the C library is not used.
    """
    found = int(_used(library_for(0)).emlio_disk_alignment(descriptor))
    if found < 0:
        raise OSError(-found, os.strerror(-found))
    return found


def _used(library: ctypes.CDLL | None) -> ctypes.CDLL:
    if library is None:
        raise OSError(errno.ENOSYS, "the C library is not used")
    return library


class Batch:
    """Transfers that were begun together. Keeps their memory."""

    __slots__ = ("address", "memory")

    def __init__(self, address: int, memory: npt.NDArray[np.uint8]) -> None:
        self.address = address
        self.memory = memory


class DiskQueue:
    """Up to `depth` transfers at the kernel, for several threads.

    Attributes:
        kind: "io_uring" or "aio".
        asked_bytes: of all transfers begun so far.
    """

    def __init__(self, depth: int, kind: str | None = None) -> None:
        """Open the queue.

        Args:
            depth: see the class.
            kind: one of the two; by default the first that this system allows.

        Raises:
            OSError: the system allows neither, or the C library is not used.
        """
        self._library = library = _used(guard_library())
        self._quick = _used(library_for(0))  # calls that neither wait nor enter the kernel
        told = np.zeros(1, np.int32)
        number = _KINDS[kind] if kind is not None else 0
        self._queue: int | None = library.emlio_disk_open(depth, number, 512, told.ctypes.data)
        if not self._queue:
            raise OSError(int(told[0]), os.strerror(int(told[0])))
        self.kind = next(name for name, number in _KINDS.items() if number == told[0])
        self._lock = Condition()  # not held while a call waits
        self.asked_bytes = 0
        self._inside = 0  # threads that wait in `finish`
        self._begun: dict[int, Batch] = {}
        self._dropped: list[Batch] = []

    def begin(
        self,
        descriptors: _Ints,
        starts: _Ints,
        sizes: _Ints,
        needed: _Ints,
        at: _Ints,
        memory: npt.NDArray[np.uint8],
        *,
        writes: bool = False,
    ) -> Batch:
        """Begin transfers; the kernel hears of them when a thread finishes one. All arrays are contiguous.

        Args:
            descriptors: (n,) the descriptor of each.
            starts: (n,) its first byte in the file.
            sizes: (n,) its size.
            needed: (n,) how many of these bytes there must be.
            at: (n,) its place in `memory`.
            memory: what is read into, or written.
            writes: whether they are writes.
        """
        addresses = at + memory.ctypes.data
        columns = (descriptors, starts, sizes, needed, addresses)
        with self._lock:
            address = self._quick.emlio_disk_begin(
                self._opened(), len(sizes), *(column.ctypes.data for column in columns), writes
            )
            if not address:
                raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            batch = Batch(address, memory)
            self._begun[address] = batch
            self.asked_bytes += int(sizes.sum())
        return batch

    def finish(
        self,
        batch: Batch,
        places: _Ints | None = None,
        sizes: _Ints | None = None,
        out: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        """Wait for a batch; then copy ranges of its memory to `out`, one after the other.

        Args:
            batch: each is finished or dropped once.
            places: (n,) where each range lies in the memory.
            sizes: (n,) its length.
            out: the destination, as large as all ranges.

        Raises:
            TransferError: a transfer failed.
            OSError: the queue was closed.
            ValueError: the batch is finished, or `out` is too small.
        """
        failed = np.full(1, _STILL_BEGUN, np.int64)
        ranges, error, is_inside = (0, 0, 0, 0), 0, False
        if places is not None and sizes is not None and out is not None:
            if out.nbytes < int(sizes.sum()) or not out.flags.c_contiguous:
                raise ValueError(f"out must be contiguous and have {int(sizes.sum())} bytes, has {out.nbytes}")
            ranges = (places.ctypes.data, sizes.ctypes.data, len(sizes), out.ctypes.data)
        try:  # a signal handler may raise an exception before the call, or after it
            with self._lock:
                queue = self._opened()
                if self._begun.get(batch.address) is not batch:
                    raise ValueError("a batch must be finished or dropped once, this one was before")
                del self._begun[batch.address]  # which another batch may have as soon as this one is freed
                self._inside, is_inside = self._inside + 1, True
            error = self._library.emlio_disk_finish(
                queue, batch.address, batch.memory.ctypes.data, *ranges, failed.ctypes.data
            )
        finally:
            still_begun = failed[0] == _STILL_BEGUN
            if is_inside:
                with self._lock:
                    self._inside -= 1
                    if still_begun:
                        self._begun[batch.address] = batch
                    if self._queue is None:
                        self._lock.notify_all()
        if still_begun:
            raise OSError(error, "the queue was closed" if error == errno.ECANCELED else os.strerror(error))
        if error:
            raise TransferError(error, int(failed[0]))
        if self._dropped:
            self.sweep()

    def waited_ns(self) -> int:
        """Return the time for which threads have waited for the kernel, each moment counted once."""
        with self._lock:
            return int(self._quick.emlio_disk_waited(self._queue)) if self._queue is not None else 0

    def push(self) -> None:
        """Tell the kernel of what was begun, as far as the depth allows. Does not wait."""
        with self._lock:
            if self._queue is not None:
                self._library.emlio_disk_push(self._queue)

    def drop(self, batch: Batch) -> None:
        """Give up a batch. Its memory is kept as long as the kernel may write to it. Does not wait."""
        with self._lock:
            self._dropped.append(batch)
        self.sweep()

    def sweep(self) -> None:
        """Forget dropped batches that the kernel is done with."""
        gone: list[Batch] = []  # they go without the lock: memory that returns to its pool takes the pool's
        with self._lock:
            if self._queue is None:
                return
            # The garbage collector may drop more meanwhile, which begins this anew.
            dropped, self._dropped = self._dropped, []
            for batch in dropped:
                if self._library.emlio_disk_drop(self._queue, batch.address):
                    del self._begun[batch.address]
                    gone.append(batch)
                else:
                    self._dropped.append(batch)

    def close(self) -> None:
        """Wait for the transfers that the kernel has, and close the queue. Threads in `finish` are woken with an error."""
        with self._lock:
            queue, self._queue = self._queue, None
            if queue is None:
                return
            self._library.emlio_disk_stop(queue)
            self._lock.wait_for(lambda: not self._inside)
        self._library.emlio_disk_close(queue)
        for address in self._begun:
            self._library.emlio_disk_free(address)
        self._begun.clear()
        self._dropped.clear()

    def _opened(self) -> int:
        if self._queue is None:
            raise OSError(errno.EBADF, "the queue is closed")
        return self._queue
