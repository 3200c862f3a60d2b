"""Leases on files: nobody shortens a file while its bytes are on their way out.

A message whose bytes lie in a mapping must not lose them: the kernel would fail the send, and libzmq ends the process for that. A
read lease (fcntl F_SETLEASE) makes the kernel hold back whoever opens the file for writing or truncates it, and tell us first; we
stop using the mapping, wait for what is under way, and let go.

Covers: taking leases, the thread that hears of breaks, how long a writer is kept waiting, letting go. Does not cover: what must
be waited for (emlio.reading.slices). Linux only. Where a lease is refused the caller copies: another owner's file, one that
is open for writing, a file system that gives none or cannot keep other hosts away.
"""

import ctypes
import fcntl
import logging
import os
import signal
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from threading import RLock, Thread
from typing import Protocol

__all__ = ["Leaseholder", "Leases"]

_LOG = logging.getLogger("emlio.daemon")
_F_SETOWN_EX = 15
_F_OWNER_TID = 0
_OWNER = struct.Struct("ii")

_PATIENCE_S = 10.0
_BREAK_TIME = Path("/proc/sys/fs/lease-break-time")

_LOCAL_FILE_SYSTEMS = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # xfs
        0x9123683E,  # btrfs
        0xF2F52010,  # f2fs
        0x2FC12FC1,  # zfs
        0x01021994,  # tmpfs
    }
)
"""Where all who may change a file ask this kernel. FUSE and some others give leases too, which bind this host only."""

_libc = ctypes.CDLL(None, use_errno=True)
_fstatfs = _libc.fstatfs
_fstatfs.restype = ctypes.c_int
_fstatfs.argtypes = [ctypes.c_int, ctypes.c_void_p]
_STATFS_BYTES = 512
"""More than struct statfs has on any machine; its first long is the kind of file system."""


class Leaseholder(Protocol):
    """Who uses a file under a lease. Both are called in the lease thread and must return at once."""

    def withdraw(self) -> bool:
        """Somebody wants to write: use the file no more, from now on. True when it is not in use, and the lease may go.

        Called again, after `Leases.look` and from time to time, as long as the answer is False.
        """
        ...

    def hurry(self) -> None:
        """The writer has waited long enough: have those stopped who still use the file."""
        ...


@dataclass(slots=True, kw_only=True)
class _Lease:
    holder: Leaseholder
    hurry_at_s: float | None = None


class Leases:
    """The leases of one daemon. `take`, `release` and `look` may be called from any thread."""

    def __init__(self, patience_s: float | None = None) -> None:
        """See the class.

        Args:
            patience_s: how long a writer is kept waiting before `hurry`; by default 10 s, less where the system would take
                leases away sooner.
        """
        self._patience_s = _default_patience_s() if patience_s is None else patience_s
        self._held: dict[int, _Lease] = {}
        # Reentrant: the collector may drop a slice, and so `look`, in the midst of this.
        self._lock = RLock()
        self._closing = False
        self._thread = Thread(target=self._run, name="emlio-leases", daemon=True)
        # The thread is born with the signal blocked: were it to arrive a moment before, it would end the process.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def take(self, descriptor: int, holder: Leaseholder) -> bool:
        """Take a lease on an open file; False where it cannot be had.

        Args:
            descriptor: open for reading only, and kept open as long as the lease shall last.
            holder: who lets go of it when somebody wants to write. The writer waits meanwhile, at most the system's
                lease-break-time (45 s).
        """
        if not _is_local(descriptor):
            return False
        with self._lock:
            if self._closing:
                return False
            try:
                # The notice goes to our thread and no other: there it is blocked and waited for, so no handler ever runs.
                fcntl.fcntl(descriptor, _F_SETOWN_EX, _OWNER.pack(_F_OWNER_TID, self._thread.native_id or 0))
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            except OSError as error:
                _LOG.debug("no lease on descriptor %d: %s", descriptor, error.strerror)
                return False
            self._held[descriptor] = _Lease(holder=holder)
            return True

    def release(self, descriptor: int) -> None:
        """Let go of a lease; harmless when there is none."""
        with self._lock:
            if self._held.pop(descriptor, None) is not None:
                _unlock(descriptor)

    def look(self) -> None:
        """A holder that was asked to let go may be able to by now: have it asked again, in the lease thread."""
        with self._lock:
            if not self._closing:
                self._wake()

    def _wake(self) -> None:
        if self._thread.ident is not None:
            signal.pthread_kill(self._thread.ident, signal.SIGIO)

    def _run(self) -> None:
        left_s: float | None = None
        while True:
            if left_s is None:
                signal.sigwaitinfo({signal.SIGIO})
            else:
                signal.sigtimedwait({signal.SIGIO}, left_s)
            with self._lock:
                if self._closing:
                    return
                breaking = [(number, lease) for number, lease in list(self._held.items()) if _is_breaking(number)]
            # All are asked before anything is waited for: one that is stuck must not keep the others in use.
            left = [self._let_go(descriptor, lease) for descriptor, lease in breaking]
            left_s = min((seconds for seconds in left if seconds is not None), default=None)

    def _let_go(self, descriptor: int, lease: _Lease) -> float | None:
        """Let go if the holder can; else in how many seconds it must be asked again at the latest."""
        if lease.holder.withdraw():
            with self._lock:
                # Else it was released meanwhile, and the number may be another file's by now.
                if self._held.get(descriptor) is lease:
                    self.release(descriptor)
            return None
        now_s = time.monotonic()
        if lease.hurry_at_s is None:
            lease.hurry_at_s = now_s + self._patience_s
        if now_s >= lease.hurry_at_s:
            lease.holder.hurry()
            lease.hurry_at_s = now_s + self._patience_s
        return lease.hurry_at_s - now_s

    def close(self) -> None:
        """Let go of all leases and end the thread; nothing may be in use any more. Closing again does nothing."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            for descriptor in self._held:
                _unlock(descriptor)
            self._held.clear()
            self._wake()
        self._thread.join()


def _default_patience_s() -> float:
    """Ten seconds; or so that half of the time the system leaves us is still there for those who are stopped."""
    try:
        break_s = int(_BREAK_TIME.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _PATIENCE_S
    return min(_PATIENCE_S, break_s / 2) if break_s > 0 else _PATIENCE_S  # with 0 it waits as long as we like


def _is_local(descriptor: int) -> bool:
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if _fstatfs(descriptor, found) != 0:
        return False
    return ctypes.c_ulong.from_buffer(found).value in _LOCAL_FILE_SYSTEMS


def _is_breaking(descriptor: int) -> bool:
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) != fcntl.F_RDLCK
    except OSError:
        return True


def _unlock(descriptor: int) -> None:
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        _LOG.debug("letting go of the lease on descriptor %d: %s", descriptor, os.strerror(error.errno or 0))
