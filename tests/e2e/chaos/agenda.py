"""What is to be done later in a run, by the one thread that does everything but wait.

Covers: actions at a time, actions when something comes true, work that blocks and what follows it. Does not cover: what they do.
"""

import heapq
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count

__all__ = ["Agenda"]

_THREADS = 6


class Agenda:
    """Call `turn` often. Errors of blocking work come out of `turn`, unless they are asked for."""

    def __init__(self) -> None:
        self._timed: list[tuple[float, int, Callable[[], None]]] = []
        self._awaited: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._working: list[tuple[Future[None], Callable[[], None], Callable[[Exception], None] | None]] = []
        self._numbers = count()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="agenda")

    @property
    def is_idle(self) -> bool:
        """Whether nothing has a time or is being worked on."""
        return not self._timed and not self._working

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do it then."""
        heapq.heappush(self._timed, (time.monotonic() + seconds, next(self._numbers), action))

    def when(self, probe: Callable[[], bool], action: Callable[[], None]) -> None:
        """Do it once `probe` is true; perhaps never."""
        self._awaited.append((probe, action))

    def aside(
        self, work: Callable[[], None], then: Callable[[], None], failed: Callable[[Exception], None] | None = None
    ) -> None:
        """Have a thread do work that blocks; afterwards `then`, or `failed` if it raised."""
        self._working.append((self._threads.submit(work), then, failed))

    def turn(self) -> None:
        """Do what is due."""
        while self._timed and self._timed[0][0] <= time.monotonic():
            heapq.heappop(self._timed)[2]()
        for pair in [pair for pair in self._awaited if pair[0]()]:
            self._awaited.remove(pair)
            pair[1]()
        for entry in [entry for entry in self._working if entry[0].done()]:
            self._working.remove(entry)
            future, then, failed = entry
            error = future.exception()
            if error is None:
                then()
            elif failed is not None and isinstance(error, Exception):
                failed(error)
            else:
                raise error

    def close(self) -> None:
        """Forget what is not due and wait for the work that is under way."""
        self._timed.clear()
        self._awaited.clear()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._working.clear()
