"""Memory for messages: reusable pieces of few sizes, used again while still in the cache.

A piece returns by itself when nothing refers to it any more (libzmq keeps it until the kernel has
the bytes).
"""

import weakref
from collections.abc import Callable
from threading import RLock

import numpy as np
import numpy.typing as npt

from emlio.native.disk import ALIGNMENT

__all__ = ["BufferPool", "aligned"]

_LEAST_KEPT_BYTES = 64 << 10
"""Smaller pieces come from the allocator, which is as fast for them."""


class BufferPool:
    """A pool of pieces that are multiples of `slab_bytes`, or a half, a quarter and so on of it.

    Unused pieces are kept as long as they add up to at most `keep_bytes`; small pieces are not
    kept. Thread-safe.
    """

    def __init__(self, slab_bytes: int, keep_bytes: int) -> None:
        self._slab_bytes = slab_bytes
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
        rounded = self._rounded(size)
        with self._lock:
            free = self._free.get(rounded)
            # The piece returned last is the most likely to be in the cache.
            slab = free.pop() if free else None
            if slab is not None:
                self._kept_bytes -= rounded
        if slab is None:
            slab = aligned(rounded)
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

    def _rounded(self, size: int) -> int:
        piece = self._slab_bytes
        while size <= piece // 2:
            piece //= 2
            if piece < _LEAST_KEPT_BYTES:
                return size
        return -(-size // piece) * piece


def aligned(size: int) -> npt.NDArray[np.uint8]:
    """Return uninitialized memory that begins at a page, into which a disk may read."""
    whole = np.empty(size + ALIGNMENT, np.uint8)
    begin = -whole.ctypes.data % ALIGNMENT
    return whole[begin : begin + size]
