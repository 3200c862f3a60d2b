"""Memory for messages: pieces of few sizes that are used again while they are still warm in the cache.

Covers: taking, and giving back by itself when nobody refers to the memory any more (libzmq keeps it until the kernel has the
bytes). Does not cover: how much may be taken; a stream has its share (emlio.daemon.stream).
"""

import weakref
from collections.abc import Callable
from threading import RLock

import numpy as np
import numpy.typing as npt

__all__ = ["BufferPool"]

_LEAST_KEPT_BYTES = 64 << 10
"""Less comes from the allocator, which is as fast for it."""


class BufferPool:
    """Memory in multiples of `slab_bytes`, or in halves, quarters and so on of a slab for what is that small.

    Unused pieces are kept as long as they add up to at most `keep_bytes`, small ones are not. Thread-safe.
    """

    def __init__(self, slab_bytes: int, keep_bytes: int) -> None:
        self._slab_bytes = slab_bytes
        self._least_kept_bytes = min(_LEAST_KEPT_BYTES, slab_bytes)
        self._keep_bytes = keep_bytes
        self._kept_bytes = 0
        self._free: dict[int, list[npt.NDArray[np.uint8]]] = {}
        # Reentrant: the collector may drop a buffer, and so give it back, in the midst of this.
        self._lock = RLock()
        self._lent: dict[int, weakref.ref[npt.NDArray[np.uint8]]] = {}

    @property
    def lent(self) -> int:
        """How many buffers are out."""
        return len(self._lent)

    def take(self, size: int, released: Callable[[int], None]) -> npt.NDArray[np.uint8]:
        """`size` bytes of memory with old contents; `released(size)` is called, from any thread, once it is free again.

        The array itself, or a memoryview of it, keeps it; a NumPy slice of it does not.
        """
        rounded = self._rounded(size)
        with self._lock:
            free = self._free.get(rounded)
            # The last one given back is the likeliest to be in the cache.
            slab = free.pop() if free else None
            if slab is not None:
                self._kept_bytes -= rounded
        if slab is None:
            slab = np.empty(rounded, np.uint8)
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

    def _has_room(self, rounded: int) -> bool:
        """Whether a piece can be kept. Pieces of other sizes go first: messages may have changed their size for good."""
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
