"""Memory for messages: slabs of one size that are used again while they are still warm in the cache.

Covers: taking, and giving back by itself when nobody refers to the memory any more (libzmq keeps it until the kernel has the
bytes). Does not cover: how much may be taken; a stream has its share (emlio.daemon.stream).
"""

import weakref
from collections.abc import Callable
from threading import Lock

import numpy as np
import numpy.typing as npt

__all__ = ["BufferPool"]


class BufferPool:
    """Slabs of `slab_bytes`; at most `keep` unused ones are kept. Thread-safe."""

    def __init__(self, slab_bytes: int, keep: int) -> None:
        self._slab_bytes = slab_bytes
        self._keep = keep
        self._free: list[npt.NDArray[np.uint8]] = []
        self._lock = Lock()
        self._lent: dict[int, weakref.ref[npt.NDArray[np.uint8]]] = {}

    @property
    def lent(self) -> int:
        """How many buffers are out."""
        return len(self._lent)

    def take(self, size: int, released: Callable[[int], None]) -> npt.NDArray[np.uint8]:
        """`size` bytes of memory with old contents; `released(size)` is called, from any thread, once it is free again."""
        slab: npt.NDArray[np.uint8] | None = None
        if size <= self._slab_bytes:
            with self._lock:
                # The last one given back is the likeliest to be in the cache.
                slab = self._free.pop() if self._free else None
            if slab is None:
                slab = np.empty(self._slab_bytes, np.uint8)
        whole = slab if slab is not None else np.empty(size, np.uint8)
        view = whole[:size]
        key = id(view)

        def give_back(_: object) -> None:
            with self._lock:
                del self._lent[key]
                if slab is not None and len(self._free) < self._keep:
                    self._free.append(slab)
            released(size)

        reference = weakref.ref(view, give_back)
        with self._lock:
            self._lent[key] = reference
        return view
