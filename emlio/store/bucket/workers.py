"""Threads that carry out requests, in the order in which they were given.

Covers: a fixed number of threads, begun on demand; the end. Does not cover: the requests
(emlio.store.bucket.requests), how many bytes are asked for (emlio.reading.ahead_budget).
"""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Condition, Thread
from typing import Any, TypeVar

from emlio.errors import ClosedError

__all__ = ["Workers"]

_Result = TypeVar("_Result")
_ENDING_S = 3.0


class Workers:
    """A pool of threads.

    The standard library's pool joins its threads when the interpreter ends, however long a server
    does not answer. These threads do not hold up the end.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._under_way: set[Future[Any]] = set()
        self._threads: list[Thread] = []
        self._idle = 0
        self._closed = False
        self._changed = Condition()

    def submit(self, work: Callable[[], _Result]) -> "Future[_Result]":
        """Have a thread do the work.

        A future that is cancelled before its turn is left out. One that is cancelled later is waited for no longer, and what
        is made is dropped.

        Raises:
            ClosedError: the pool is closed.
        """
        future: Future[_Result] = Future()
        with self._changed:
            if self._closed:
                raise ClosedError("the dataset is closed")
            self._waiting.append((future, work))
            if self._idle >= len(self._waiting):
                self._changed.notify()
            elif len(self._threads) < self._most:
                thread = Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def _run(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._waiting or self._closed)
                self._idle -= 1
                if not self._waiting:
                    return
                future, work = self._waiting.popleft()
                self._under_way.add(future)
            _carry_out(future, work)
            self._under_way.discard(future)
            del future, work  # an idle thread must not keep the last result in memory

    def close(self) -> None:
        """Cancel everything, and end the threads. Closing again does nothing.

        A thread that waits for a server is waited for only briefly: it ends when the server has
        answered, or the request has timed out.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
            dropped = [*(future for future, _ in self._waiting), *self._under_way]
            self._waiting.clear()
            self._changed.notify_all()
        for future in dropped:
            future.cancel()
        deadline_s = time.monotonic() + _ENDING_S
        for thread in self._threads:
            thread.join(max(deadline_s - time.monotonic(), 0))


def _carry_out(future: "Future[Any]", work: Callable[[], Any]) -> None:
    if future.cancelled():
        return
    try:
        made = work()
    except BaseException as error:  # noqa: BLE001  # raised where the result is wanted
        if future.set_running_or_notify_cancel():
            future.set_exception(error)
    else:
        if future.set_running_or_notify_cancel():
            future.set_result(made)
