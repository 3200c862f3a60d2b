"""Leases on files, so that no process shortens a file while its bytes are being sent.

A message whose bytes lie in a mapping must not lose them: the kernel would fail the send, and
libzmq then ends the process. With a read lease (fcntl F_SETLEASE), the kernel blocks a process that
opens the file for writing or truncates it, and notifies this process first. Then the mapping is not
used any more, and the lease is released when what is under way has left.

Linux only. Where a lease is refused the caller copies: a file of another owner, a file that is open
for writing, a file system that has no leases or cannot exclude other hosts.
"""

import ctypes
import fcntl
import logging
import os
import signal
import struct
import time
from pathlib import Path
from threading import RLock, Thread
from typing import Protocol

import msgspec

__all__ = ["Leaseholder", "Leases", "is_local"]

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
"""File systems where every writer goes through this kernel. FUSE and some others grant leases, too,
but those bind this host only."""

_libc = ctypes.CDLL(None, use_errno=True)
_fstatfs = _libc.fstatfs
_fstatfs.restype = ctypes.c_int
_fstatfs.argtypes = [ctypes.c_int, ctypes.c_void_p]
_STATFS_BYTES = 512
"""Larger than struct statfs on any machine. Its first long is the type of the file system."""


class Leaseholder(Protocol):
    """A user of a file under a lease.

    Both methods are called in the lease thread and must return at once.
    """

    def withdraw(self) -> bool:
        """Stop using the file, as a process waits to write; return True if the lease may go.

        The method is called again, after `Leases.look` and from time to time, as long as it returns
        False.
        """
        ...

    def hurry(self) -> None:
        """Stop those who still use the file: the writer has waited long enough."""
        ...


class _Lease(msgspec.Struct, kw_only=True):
    holder: Leaseholder
    hurry_at_s: float | None = None


class Leases:
    """The leases of one daemon. Any thread may call `take`, `release` and `look`."""

    def __init__(self, patience_s: float | None = None) -> None:
        """See the class.

        Args:
            patience_s: how long a writer waits before `hurry` is called; by default 10 s, less if
                the system would break leases earlier.
        """
        self._patience_s = _default_patience_s() if patience_s is None else patience_s
        self._held: dict[int, _Lease] = {}
        # Reentrant: the garbage collector may drop a slice, which calls `look`, while the lock is
        # held.
        self._lock = RLock()
        self._closing = False
        self._thread = Thread(target=self._run, name="emlio-leases", daemon=True)
        # The thread starts with the signal blocked: if it came a moment before, it would end the
        # process.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def take(self, descriptor: int, holder: Leaseholder) -> bool:
        """Take a lease on an open file; return False if it is refused.

        Args:
            descriptor: a descriptor open for reading only, kept open as long as the lease shall
                last.
            holder: releases the lease when a process wants to write. The writer waits meanwhile, at
                most the system's lease-break-time (45 s).
        """
        if not is_local(descriptor):
            return False
        with self._lock:
            if self._closing:
                return False
            try:
                # The notice goes to the lease thread only: there the signal is blocked and waited
                # for, so no handler ever runs.
                fcntl.fcntl(descriptor, _F_SETOWN_EX, _OWNER.pack(_F_OWNER_TID, self._thread.native_id or 0))
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            except OSError as error:
                _LOG.debug("no lease on descriptor %d: %s", descriptor, error.strerror)
                return False
            self._held[descriptor] = _Lease(holder=holder)
            return True

    def release(self, descriptor: int) -> None:
        """Release a lease; harmless when there is none."""
        with self._lock:
            if self._held.pop(descriptor, None) is not None:
                _unlock(descriptor)

    def look(self) -> None:
        """Ask withdrawn holders again, in the lease thread, as they may be able to release now."""
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
            # All are asked before any wait: one that is stuck must not keep the others in use.
            left = [self._let_go(descriptor, lease) for descriptor, lease in breaking]
            left_s = min((seconds for seconds in left if seconds is not None), default=None)

    def _let_go(self, descriptor: int, lease: _Lease) -> float | None:
        """Release the lease if its holder can; else return the seconds until it is asked again."""
        if lease.holder.withdraw():
            with self._lock:
                # otherwise it was released meanwhile, and the number may belong to another file now
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
        """Release all leases and end the thread; nothing may be in use any more. Idempotent."""
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
    """Return ten seconds, or half of the system's limit if that is less.

    Then half of that time is left for those who are stopped.
    """
    try:
        break_s = int(_BREAK_TIME.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _PATIENCE_S
    # With 0 the kernel waits without a limit.
    return min(_PATIENCE_S, break_s / 2) if break_s > 0 else _PATIENCE_S


def is_local(descriptor: int) -> bool:
    """Return whether this file, or folder, lies in a file system that only this kernel writes to."""
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
        _LOG.debug("releasing the lease on descriptor %d failed: %s", descriptor, os.strerror(error.errno or 0))
