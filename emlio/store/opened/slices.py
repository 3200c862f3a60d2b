"""Messages that are slices of a mapped file, sent without a copy while the file is under a lease."""

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

from emlio.store.opened.leases import Leases

__all__ = ["Borrower", "SliceLender"]

_MADV_POPULATE_READ = 22
_PAGE = mmap.PAGESIZE

_libc = ctypes.CDLL(None, use_errno=True)
_madvise = _libc.madvise
_madvise.restype = ctypes.c_int
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Borrower(Protocol):
    """The borrower of a slice."""

    def released(self, size_bytes: int) -> None:
        """Note that nothing refers to a slice of this size any more.

        Called in any thread that drops the last reference.
        """
        ...


def _nothing() -> None:
    """Do nothing: the default action after `close`."""


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
            descriptor: the descriptor of the file.
            whole: the file's bytes, mapped.
            leases: grants the lease.
            on_stuck: called with the borrowers that do not give back their slices although a
                process waits to write: they must be stopped.
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
        # Reentrant: the garbage collector may drop a slice, which gives it back, while the lock is
        # held.
        self._lock = RLock()

    def lend(self, start: int, end: int, borrower: Borrower) -> npt.NDArray[np.uint8] | None:
        """Return the file's bytes [start, end), in memory; None if they must be copied instead.

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
        # Outside the lock: this waits for a cold disk. libzmq's thread must find all pages in
        # memory.
        first = self._whole.ctypes.data + start
        page = first - first % _PAGE
        if self._populate(page, first + (end - start) - page, _MADV_POPULATE_READ) == 0:
            lent = True
            return view
        # If the file no longer has such bytes, or its disk cannot read them, the copy raises the
        # proper error.
        if ctypes.get_errno() in (errno.EINVAL, errno.ENOSYS):
            with self._lock:  # a kernel before 5.14 cannot populate pages
                self._use = _Use.COPY
        return None

    def _ask(self) -> None:
        """Ask for the lease, once.

        Not under the lock: `Leases` has a lock of its own, and calls `withdraw`.
        """
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
                # Otherwise a process wants to write already, or the lender was closed.
                if self._use is _Use.ASKED:
                    self._use = _Use.LEASED if leased else _Use.COPY
                then, self._after_asking = self._after_asking, None
            if then is not None:
                self._leases.release(self._descriptor)
                then()

    @property
    def only_copies(self) -> bool:
        """True if nothing of this file is ever lent.

        Either no lease is granted, or a process wanted to write to it.
        """
        return self._use is _Use.COPY

    def retire(self) -> bool:
        """Lend nothing more if no slice is borrowed, as others need the room.

        Returns:
            Whether the lender may be closed now.
        """
        with self._lock:
            if self._out or self._asking:
                return False
            self._use = _Use.RETIRED
            return True

    def withdraw(self) -> bool:
        """Lend nothing more; return whether no slice is borrowed."""
        with self._lock:
            self._use = _Use.COPY
            return not self._out

    def hurry(self) -> None:
        """Stop the borrowers that still have slices."""
        with self._lock:
            borrowers = {id(borrower): borrower for _, borrower in self._out.values()}
        if borrowers:
            self._on_stuck(borrowers.values())

    def close(self, then: Callable[[], None] = _nothing) -> None:
        """Lend nothing more and release the lease.

        Borrowed slices stay readable until the file gets shorter.

        Args:
            then: called once the descriptor is not used here any more: now, or by the thread that
                is just asking for the lease.
        """
        with self._lock:
            # COPY means that a writer came, or that no lease is granted.
            if self._use is not _Use.COPY:
                self._use = _Use.RETIRED
            if self._asking:
                self._after_asking = then
                return
        self._leases.release(self._descriptor)
        then()
