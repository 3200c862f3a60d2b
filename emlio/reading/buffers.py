"""Memory for messages: reusable pieces of few sizes, used again while still in the cache.

A piece returns by itself when nothing refers to it any more (libzmq keeps it until the kernel has
the bytes).
"""

import weakref
from collections.abc import Callable
from contextlib import suppress
from mmap import MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_PRIVATE, mmap
from threading import RLock

import numpy as np
import numpy.typing as npt

from emlio.native.disk import ALIGNMENT

__all__ = ["AheadBudget", "BufferPool", "aligned"]

_SLAB_BYTES = 4 << 20
_MOST_UNUSED_BYTES = 32 << 20
"""Memory for what is read ahead: in such pieces, of which so many bytes are kept unused."""

_HUGE_PAGE = 2 << 20

_LEAST_KEPT_BYTES = 64 << 10
"""Smaller pieces come from the allocator, which is as fast for them."""


class BufferPool:
    """A pool of pieces that are multiples of `slab_bytes`, or a half, a quarter and so on of it.

    Unused pieces are kept as long as they add up to at most `keep_bytes`; small pieces are not
    kept. Aligned ones begin at a page, so that a disk may read into them; all of such a piece may be in memory,
    so large ones are multiples of an eighth. Thread-safe.
    """

    def __init__(self, slab_bytes: int, keep_bytes: int, *, aligned: bool = False) -> None:
        self._slab_bytes = slab_bytes
        self._aligned = aligned
        self._least_kept_bytes = min(_LEAST_KEPT_BYTES, slab_bytes)
        self._keep_bytes = keep_bytes
        self._kept_bytes = 0
        self._free: dict[int, list[npt.NDArray[np.uint8]]] = {}
        # Reentrant: the garbage collector may drop a buffer, which returns it, while the lock is
        # held.
        self._lock = RLock()
        self._lent: dict[int, weakref.ref[npt.NDArray[np.uint8]]] = {}

    @property
    def lent(self) -> int:
        """The number of buffers in use."""
        return len(self._lent)

    def take(self, size: int, released: Callable[[int], None]) -> npt.NDArray[np.uint8]:
        """Return `size` bytes of uninitialized memory.

        `released(size)` is called, from any thread, once it is free again. The array itself, or a
        memoryview of it, keeps the memory in use; a NumPy slice of it does not.
        """
        rounded = self.rounded(size)
        with self._lock:
            free = self._free.get(rounded)
            # The piece returned last is the most likely to be in the cache.
            slab = free.pop() if free else None
            if slab is not None:
                self._kept_bytes -= rounded
        if slab is None:
            slab = aligned(rounded) if self._aligned else np.empty(rounded, np.uint8)
        view = slab[:size]
        key = id(view)

        def give_back(_: object) -> None:
            with self._lock:
                del self._lent[key]
                if rounded >= self._least_kept_bytes and self._has_room(rounded):
                    self._free.setdefault(rounded, []).append(slab)
                    self._kept_bytes += rounded
            released(size)

        reference = weakref.ref(view, give_back)
        with self._lock:
            self._lent[key] = reference
        return view

    def keep(self, keep_bytes: int) -> None:
        """Change the limit of unused memory that is kept."""
        with self._lock:
            self._keep_bytes = keep_bytes
            for rounded, pieces in self._free.items():
                while pieces and self._kept_bytes > keep_bytes:
                    pieces.pop()
                    self._kept_bytes -= rounded

    def _has_room(self, rounded: int) -> bool:
        """Return whether a piece can be kept.

        Pieces of other sizes are dropped first: messages may have changed their size for good.
        """
        if rounded > self._keep_bytes:
            return False
        for other, pieces in self._free.items():
            while other != rounded and pieces and self._kept_bytes + rounded > self._keep_bytes:
                pieces.pop()
                self._kept_bytes -= other
        return self._kept_bytes + rounded <= self._keep_bytes

    def rounded(self, size: int) -> int:
        """Return the size of the piece that is taken for so many bytes."""
        piece = self._slab_bytes
        if self._aligned and size > piece // 2:
            return -(-size // (piece // 8)) * (piece // 8)
        while size <= piece // 2:
            piece //= 2
            if piece < _LEAST_KEPT_BYTES:
                return size
        return -(-size // piece) * piece


def aligned(size: int) -> npt.NDArray[np.uint8]:
    """Return uninitialized memory that begins at a page, into which a disk may read.

    Where it is large enough, it has huge pages: for a disk a block is then one piece instead of hundreds.

    Raises:
        MemoryError: there is not so much.
    """
    if size < _HUGE_PAGE:
        whole, alignment = np.empty(size + ALIGNMENT, np.uint8), ALIGNMENT
    else:
        try:
            mapping = mmap(-1, size + _HUGE_PAGE, MAP_PRIVATE | MAP_ANONYMOUS)
        except (OSError, OverflowError) as error:  # callers know the error of the disk by its kind
            raise MemoryError(f"{size} bytes of memory cannot be had: {error}") from error
        whole, alignment = np.frombuffer(mapping, np.uint8), _HUGE_PAGE
        with suppress(OSError):  # this kernel has none
            mapping.madvise(MADV_HUGEPAGE, -whole.ctypes.data % alignment, size // _HUGE_PAGE * _HUGE_PAGE)
    begin = -whole.ctypes.data % alignment
    return whole[begin : begin + size]


class AheadBudget:
    """A number of bytes that several feeds share. Thread-safe.

    Attributes:
        most_bytes: the number.
        pool: memory for these bytes, if a disk reads into it; one for all, since it keeps what is unused.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.pool = BufferPool(_SLAB_BYTES, min(_MOST_UNUSED_BYTES, most_bytes), aligned=True)
        self._held_bytes = 0
        self._feeds = 0
        # Reentrant: the garbage collector may drop memory, which gives its bytes back, while it is held.
        self._lock = RLock()

    @property
    def held_bytes(self) -> int:
        """The bytes requested, or there and not read."""
        return self._held_bytes

    @property
    def share_bytes(self) -> int:
        """The part of one feed."""
        return self.most_bytes // max(self._feeds, 1)

    def join(self) -> None:
        """Count one more feed."""
        with self._lock:
            self._feeds += 1

    def leave(self) -> None:
        """Count one feed less."""
        with self._lock:
            self._feeds -= 1

    def take(self, size_bytes: int) -> bool:
        """Count bytes if they fit; return whether they are counted."""
        with self._lock:
            if self._held_bytes + size_bytes > self.most_bytes:
                return False
            self._held_bytes += size_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        """Note that so many bytes are free again."""
        with self._lock:
            self._held_bytes -= size_bytes
