"""Messages that are slices of a mapped file: no copy, as long as the file is under a lease.

Covers: lending slices, counting those under way, and taking a file out of use when somebody wants to write to it. Does not cover:
the leases themselves (emlio.daemon.leases), files (emlio.daemon.files).
"""

import ctypes
import errno
import mmap
import weakref
from collections.abc import Callable
from enum import Enum
from threading import Condition

import numpy as np
import numpy.typing as npt

from emlio.daemon.leases import Leases

__all__ = ["SliceLender", "UnreadableRangeError"]

_MADV_POPULATE_READ = 22
_PAGE = mmap.PAGESIZE
_WAIT_S = 10.0

_libc = ctypes.CDLL(None, use_errno=True)
_madvise = _libc.madvise
_madvise.restype = ctypes.c_int
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class UnreadableRangeError(Exception):
    """The file no longer has the range, or its disk cannot read it."""


class _Use(Enum):
    UNTRIED = "untried"
    LEASED = "leased"
    COPY = "copy"


class SliceLender:
    """Slices of one mapped file. Thread-safe."""

    def __init__(self, descriptor: int, mapping: mmap.mmap, leases: Leases, on_stuck: Callable[[], None]) -> None:
        """See the class.

        Args:
            descriptor: of the file.
            mapping: of all of it.
            leases: where a lease is had.
            on_stuck: called when slices do not come back although somebody waits to write: who uses them must be stopped.
        """
        self._descriptor = descriptor
        # Kept as long as a slice is: the mapping ends with the last of them.
        self._whole = np.frombuffer(mapping, np.uint8)
        self._leases = leases
        self._on_stuck = on_stuck
        self._use = _Use.UNTRIED
        self._out: dict[int, weakref.ref[npt.NDArray[np.uint8]]] = {}
        self._back = Condition()

    def lend(self, start: int, end: int, released: Callable[[int], None]) -> npt.NDArray[np.uint8] | None:
        """The file's bytes [start, end), already in memory; None where they must be copied instead.

        `released(end - start)` is called, from any thread, when nobody refers to the slice any more. Raises
        `UnreadableRangeError` where the bytes are not there.
        """
        with self._back:
            if self._use is _Use.UNTRIED:
                leased = self._leases.take(self._descriptor, self._withdraw)
                self._use = _Use.LEASED if leased else _Use.COPY
            if self._use is _Use.COPY:
                return None
            view = self._whole[start:end]
            key = id(view)

            def give_back(_: object) -> None:
                with self._back:
                    del self._out[key]
                    self._back.notify_all()
                released(end - start)

            self._out[key] = weakref.ref(view, give_back)
        # Outside the lock: this is where a cold disk is waited for. libzmq's thread must find all pages in place.
        first = self._whole.ctypes.data + start
        page = first - first % _PAGE
        if _madvise(page, first + (end - start) - page, _MADV_POPULATE_READ) == 0:
            return view
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
            raise UnreadableRangeError
        with self._back:  # a kernel before 5.14 cannot fill pages for us
            self._use = _Use.COPY
        return None

    def _withdraw(self) -> None:
        """Somebody wants to write: lend nothing more, and wait until nothing is out."""
        with self._back:
            self._use = _Use.COPY
            if self._back.wait_for(lambda: not self._out, _WAIT_S):
                return
        self._on_stuck()
        with self._back:
            self._back.wait_for(lambda: not self._out, _WAIT_S)

    def close(self) -> None:
        """Lend nothing more and let go of the lease. Slices that are out stay readable."""
        with self._back:
            self._use = _Use.COPY
        self._leases.release(self._descriptor)
