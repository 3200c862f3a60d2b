"""A way to end a thread's wait from another thread.

Covers: a descriptor that becomes readable, to be polled beside sockets. Does not cover: waiting.
"""

import os
from threading import RLock

__all__ = ["Waker"]


class Waker:
    """A descriptor that ends another thread's wait.

    Any thread may call `wake`; one thread waits and calls `rest`. A waker without references closes
    itself: an interrupt may come before its owner has stored it.
    """

    _fd = -1

    def __init__(self) -> None:
        # A wake during a close must not write to a number that belongs to another file by now.
        # Reentrant, because a signal handler may call `wake` while its own thread does.
        self._lock = RLock()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._fd

    def wake(self) -> None:
        """End the wait, now or the next one."""
        with self._lock:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def rest(self) -> None:
        """Consume all wakes so far."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Free the descriptor."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            self.close()
