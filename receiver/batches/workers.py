"""A fixed number of threads that share the steps of jobs, in order of arrival.

Covers: the threads, handing out steps, counting their time, stopping. Does not cover: the work of a
step, and its errors: a step must not raise.
"""

import time
from collections import deque
from collections.abc import Callable
from threading import Condition, Lock, Thread

from emlio.errors import ClosedError, ConfigError
from emlio.receiver.threads.unended import PATIENCE_S, join_all

__all__ = ["Workers"]


class Workers:
    """Threads for steps. `add` may be called from any thread that no interrupt reaches.

    The first job starts the threads. So an interrupt while a loader is made leaves none behind.

    Attributes:
        threads: the threads.
    """

    def __init__(self, threads: int, name: str) -> None:
        """Prepare the threads.

        Args:
            threads: the number of threads.
            name: their name, followed by a number.
        """
        self.worked_ns = 0  # over all threads
        # The closing thread takes the lock itself: a signal could leave a condition's own `with`
        # half done.
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._jobs: deque[_Steps] = deque()
        self._closed = False
        self._started = 0
        self._most = threads  # that work at the same time
        self._working = 0
        self.threads = [Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(threads)]

    def add(self, step: Callable[[int], None], count: int, cancel: Callable[[], None]) -> None:
        """Have `step` called with each number from 0 to `count` - 1.

        The calls begin in rising order, in whichever thread is free. `cancel` is called instead if
        the workers are closed before all steps were handed out.
        """
        if count < 1:
            raise ConfigError(f"a job must have at least 1 step, got {count}")
        with self._changed:
            if self._closed:
                raise ClosedError("the workers are closed")
            for thread in self.threads[self._started :]:
                thread.start()
                self._started += 1
            self._jobs.append(_Steps(step, count, cancel))
            self._changed.notify(min(count, len(self.threads)))

    def use(self, threads: int) -> None:
        """Let at most so many threads work at the same time from now on."""
        with self._changed:
            self._most = threads
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._jobs and self._working < self._most))
                if self._closed:
                    return
                self._working += 1
                job = self._jobs[0]
                number = job.dealt
                job.dealt += 1
                if job.dealt == job.count:
                    self._jobs.popleft()
            begun_ns = time.monotonic_ns()
            job.step(number)
            # No reference to the job may stay here: its memory is the user's to free.
            del job
            with self._changed:
                self.worked_ns += time.monotonic_ns() - begun_ns
                self._working -= 1
                if self._jobs and self._most < len(self.threads):
                    self._changed.notify()  # one that was woken may have found that enough work

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Stop the threads after their current steps and wait for that; a second call continues.

        Args:
            patience_s: the longest wait. A warning names steps that take longer; their threads are
                left running.
        """
        with self._lock:
            self._closed = True
            dropped, self._jobs = self._jobs, deque()
            self._changed.notify_all()
        for job in dropped:
            job.cancel()
        join_all(self.threads, patience_s)


class _Steps:
    """A job's steps and how many of them are handed out."""

    __slots__ = ("cancel", "count", "dealt", "step")

    def __init__(self, step: Callable[[int], None], count: int, cancel: Callable[[], None]) -> None:
        self.step, self.count, self.cancel = step, count, cancel
        self.dealt = 0
