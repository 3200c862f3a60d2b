"""Threads that read answers.

A disk may hang, and a thread that waits for it must not keep the process from ending. So these are
no `concurrent.futures` threads, which are waited for.
"""

import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread, current_thread

__all__ = ["Workers"]

_MOST_IDLE = 4
_ENDING_S = 1.0


class Workers:
    """As many threads as there are tasks; a few are kept for the next ones. One thread calls the methods."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: set[Thread] = set()
        self._idle = 0

    def begin(self, task: Callable[[], None]) -> None:
        """Run a task now.

        Raises:
            RuntimeError: the system has no thread left.
        """
        if self._idle:
            self._idle -= 1
        else:
            thread = Thread(target=self._run, name="emlio-questions", daemon=True)
            thread.start()
            self._threads.add(thread)
        self._tasks.put(task)

    def ended(self) -> None:
        """Note that a task has ended."""
        if self._idle < _MOST_IDLE:
            self._idle += 1
        else:
            self._tasks.put(None)

    def close(self) -> None:
        """End the threads; one that waits for a disk is left to end when the disk answers."""
        threads = list(self._threads)
        for _ in threads:
            self._tasks.put(None)
        deadline_s = time.monotonic() + _ENDING_S
        for thread in threads:
            thread.join(max(deadline_s - time.monotonic(), 0))

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # its answer must not live until the next task
        self._threads.discard(current_thread())
