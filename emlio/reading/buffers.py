"""Memory for messages: slabs of one size that are used again while they are still warm in the cache.

Covers: taking, and giving back by itself when nobody refers to the memory any more (libzmq keeps it until the kernel has the
bytes). Does not cover: how much may be taken; a stream has its share (emlio.daemon.stream).
"""

import weakref
from collections.abc import Callable
from threading import RLock

import numpy as np
import numpy.typing as npt

__all__ = ["BufferPool"]


class BufferPool:
    """Memory in multiples of `slab_bytes`; unused pieces are kept as long as they add up to at most `keep_bytes`. Thread-safe."""

    def __init__(self, slab_bytes: int, keep_bytes: int) -> None:
        self._slab_bytes = slab_bytes
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
        rounded = max(-(-size // self._slab_bytes), 1) * self._slab_bytes
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
                if self._kept_bytes + rounded <= self._keep_bytes:
                    self._free.setdefault(rounded, []).append(slab)
                    self._kept_bytes += rounded
            released(size)

        reference = weakref.ref(view, give_back)
        with self._lock:
            self._lent[key] = reference
        return view
