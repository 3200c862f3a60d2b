"""A lock for objects that the garbage collector may end, where a thread holds any lock: it must not wait there."""

from collections import deque
from collections.abc import Callable
from threading import Lock

__all__ = ["YieldingLock"]


class YieldingLock:
    """A lock that can be asked to do something later."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left: deque[Callable[[], None]] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            self._do_left()
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self._settle()

    def later(self, action: Callable[[], None]) -> None:
        """Do something with the lock: now, or if it is not free, when it is let go. Does not wait."""
        self._left.append(action)
        self._settle()

    def _settle(self) -> None:
        while self._left and self._lock.acquire(blocking=False):
            try:
                self._do_left()
            finally:
                self._lock.release()

    def _do_left(self) -> None:
        while self._left:
            self._left.popleft()()
