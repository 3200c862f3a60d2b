"""Leases on files: nobody shortens a file while its bytes are on their way out.

A message whose bytes lie in a mapping must not lose them: the kernel would fail the send, and libzmq ends the process for that. A
read lease (fcntl F_SETLEASE) makes the kernel hold back whoever opens the file for writing or truncates it, and tell us first; we
stop using the mapping, wait for what is under way, and let go.

Covers: taking leases, the thread that hears of breaks, letting go. Does not cover: what must be waited for (emlio.daemon.files).
Linux only; where a lease is refused (another owner's file, a file system without them) the caller copies instead.
"""

import fcntl
import logging
import os
import signal
import struct
from collections.abc import Callable
from threading import Event, Lock, Thread, get_native_id

__all__ = ["Leases"]

_LOG = logging.getLogger("emlio.daemon")
_F_SETOWN_EX = 15
_F_OWNER_TID = 0
_OWNER = struct.Struct("ii")
_START_S = 5.0


class Leases:
    """The leases of one daemon. `take` may be called from any thread while it is open."""

    def __init__(self) -> None:
        self._held: dict[int, Callable[[], None]] = {}
        self._lock = Lock()
        self._thread_id = 0
        self._listening = Event()
        self._closing = False
        self._thread = Thread(target=self._run, name="emlio-leases", daemon=True)
        self._thread.start()
        self._listening.wait(_START_S)

    def take(self, descriptor: int, on_break: Callable[[], None]) -> bool:
        """Take a lease on an open file; False where it cannot be had.

        Args:
            descriptor: open for reading only, and kept open as long as the lease shall last.
            on_break: called once, in the lease thread, when somebody wants to write; the writer waits until it returns, at
                most the system's lease-break-time (45 s).
        """
        with self._lock:
            if self._closing or not self._listening.is_set():
                return False
            try:
                # The notice goes to our thread and no other: there it is blocked and waited for, so no handler ever runs.
                fcntl.fcntl(descriptor, _F_SETOWN_EX, _OWNER.pack(_F_OWNER_TID, self._thread_id))
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            except OSError as error:
                _LOG.debug("no lease on descriptor %d: %s", descriptor, error.strerror)
                return False
            self._held[descriptor] = on_break
            return True

    def release(self, descriptor: int) -> None:
        """Let go of a lease; harmless when there is none."""
        with self._lock:
            if self._held.pop(descriptor, None) is not None:
                _unlock(descriptor)

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
        self._thread_id = get_native_id()
        self._listening.set()
        while True:
            signal.sigwaitinfo({signal.SIGIO})
            if self._closing:
                return
            with self._lock:
                breaking = [(number, call) for number, call in self._held.items() if _is_breaking(number)]
            for descriptor, on_break in breaking:
                on_break()
                self.release(descriptor)

    def close(self) -> None:
        """Let go of all leases and end the thread. Closing again does nothing."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            for descriptor in self._held:
                _unlock(descriptor)
            self._held.clear()
        if self._thread.ident is not None:
            signal.pthread_kill(self._thread.ident, signal.SIGIO)
            self._thread.join()


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
