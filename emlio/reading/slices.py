"""Messages that are slices of a mapped file: no copy, as long as the file is under a lease.

Covers: lending slices, knowing who has them, and taking a file out of use when somebody wants to write to it. Does not cover:
the leases themselves (emlio.reading.leases), files (emlio.reading.files).
"""

import ctypes
import errno
import mmap
import weakref
from collections.abc import Callable, Collection
from enum import Enum
from threading import RLock
from typing import Protocol

import numpy as np
import numpy.typing as npt

from emlio.reading.leases import Leases

__all__ = ["Borrower", "SliceLender"]

_MADV_POPULATE_READ = 22
_PAGE = mmap.PAGESIZE

_libc = ctypes.CDLL(None, use_errno=True)
_madvise = _libc.madvise
_madvise.restype = ctypes.c_int
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Borrower(Protocol):
    """Who a slice is lent to."""

    def released(self, size_bytes: int) -> None:
        """Nobody refers to a slice of this size any more. Called from any thread, wherever the last reference went."""
        ...


def _nothing() -> None:
    """What follows a close by default."""


class _Use(Enum):
    UNTRIED = "untried"
    ASKED = "asked"
    LEASED = "leased"
    COPY = "copy"
    RETIRED = "retired"


class SliceLender:
    """Slices of one mapped file, and the holder of its lease. Thread-safe."""

    def __init__(
        self,
        descriptor: int,
        whole: npt.NDArray[np.uint8],
        leases: Leases,
        on_stuck: Callable[[Collection[Borrower]], None],
        populate: Callable[[int, int, int], int] = _madvise,
    ) -> None:
        """See the class.

        Args:
            descriptor: of the file.
            whole: the file's bytes, mapped.
            leases: where a lease is had.
            on_stuck: called with those whose slices do not come back although somebody waits to write: they must be stopped.
            populate: the system call madvise.
        """
        self._descriptor = descriptor
        # Kept as long as a slice is: the mapping ends with the last of them.
        self._whole = whole
        self._leases = leases
        self._on_stuck = on_stuck
        self._populate = populate
        self._use = _Use.UNTRIED
        self._asking = False
        self._after_asking: Callable[[], None] | None = None
        self._out: dict[int, tuple[weakref.ref[npt.NDArray[np.uint8]], Borrower]] = {}
        # Reentrant: the collector may drop a slice, and so give it back, in the midst of this.
        self._lock = RLock()

    def lend(self, start: int, end: int, borrower: Borrower) -> npt.NDArray[np.uint8] | None:
        """The file's bytes [start, end), already in memory; None where they must be copied instead.

        The array itself, or a memoryview of it, keeps them; a NumPy slice of it does not.
        """
        if self._use is _Use.UNTRIED:
            self._ask()
        with self._lock:
            if self._use is not _Use.LEASED:
                return None
            view = self._whole[start:end]
            key, lent = id(view), False

            def give_back(_: object) -> None:
                with self._lock:
                    del self._out[key]
                    waited_for = self._use is _Use.COPY and not self._out
                if waited_for:
                    self._leases.look()
                if lent:
                    borrower.released(end - start)

            self._out[key] = weakref.ref(view, give_back), borrower
        # Outside the lock: this is where a cold disk is waited for. libzmq's thread must find all pages in place.
        first = self._whole.ctypes.data + start
        page = first - first % _PAGE
        if self._populate(page, first + (end - start) - page, _MADV_POPULATE_READ) == 0:
            lent = True
            return view
        # Where the file has no such bytes any more, or its disk cannot read them, the copy finds out how to say it.
        if ctypes.get_errno() in (errno.EINVAL, errno.ENOSYS):
            with self._lock:  # a kernel before 5.14 cannot fill pages for us
                self._use = _Use.COPY
        return None

    def _ask(self) -> None:
        """Ask for the lease, once. Not under the lock: `Leases` has one of its own, and calls `withdraw`."""
        with self._lock:
            if self._use is not _Use.UNTRIED:
                return
            self._use, self._asking = _Use.ASKED, True
        leased = False
        try:
            leased = self._leases.take(self._descriptor, self)
        finally:
            with self._lock:
                self._asking = False
                if self._use is _Use.ASKED:  # else somebody wants to write already, or it was closed
                    self._use = _Use.LEASED if leased else _Use.COPY
                then, self._after_asking = self._after_asking, None
            if then is not None:
                self._leases.release(self._descriptor)
                then()

    @property
    def only_copies(self) -> bool:
        """Whether nothing of this file is ever lent: no lease can be had, or somebody wanted to write to it."""
        return self._use is _Use.COPY

    def retire(self) -> bool:
        """Lend nothing more because others need the room, if nothing is out; whether it may be closed now."""
        with self._lock:
            if self._out or self._asking:
                return False
            self._use = _Use.RETIRED
            return True

    def withdraw(self) -> bool:
        """Lend nothing more; whether nothing is out."""
        with self._lock:
            self._use = _Use.COPY
            return not self._out

    def hurry(self) -> None:
        """Have those stopped whose slices are out."""
        with self._lock:
            borrowers = {id(borrower): borrower for _, borrower in self._out.values()}
        if borrowers:
            self._on_stuck(borrowers.values())

    def close(self, then: Callable[[], None] = _nothing) -> None:
        """Lend nothing more and let go of the lease. Slices that are out stay readable until the file gets shorter.

        Args:
            then: called once the descriptor is not used here any more: now, or by the thread that just asks for the lease.
        """
        with self._lock:
            if self._use is not _Use.COPY:  # which says that a writer came, or that no lease can be had
                self._use = _Use.RETIRED
            if self._asking:
                self._after_asking = then
                return
        self._leases.release(self._descriptor)
        then()
