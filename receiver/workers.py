"""A fixed number of threads that share the steps of jobs, first come first served.

Covers: the threads, dealing out steps, counting their time, ending. Does not cover: what a step does, and errors in it: a
step must not raise.
"""

import time
from collections import deque
from collections.abc import Callable
from threading import Condition, Lock, Thread

from emlio.errors import ClosedError, ConfigError
from emlio.receiver.energy_work import WorkLog
from emlio.receiver.unended import PATIENCE_S, join_all

__all__ = ["Workers"]


class Workers:
    """Threads for steps. `add` may be called from any thread.

    Attributes:
        threads: those.
    """

    def __init__(self, threads: int, name: str, log: WorkLog | None = None) -> None:
        """Start the threads.

        Args:
            threads: how many.
            name: theirs, with a number behind it.
            log: told when one is at work; None where nobody wants to know.
        """
        self._log = log
        self.worked_ns = 0  # over all threads
        # Taken as such by the thread that closes: a signal could leave a condition's own `with` half done.
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._jobs: deque[_Steps] = deque()
        self._closed = False
        self.threads = [Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(threads)]
        for thread in self.threads:
            thread.start()

    def add(self, step: Callable[[int], None], count: int, cancel: Callable[[], None]) -> None:
        """Have `step` called with each number up to before `count`, begun in rising order, by whichever thread is free.

        `cancel` is called instead when the workers are closed before all steps were dealt out.
        """
        if count < 1:
            raise ConfigError(f"a job must have at least 1 step, got {count}")
        with self._changed:
            if self._closed:
                raise ClosedError("the workers are closed")
            self._jobs.append(_Steps(step, count, cancel))
            self._changed.notify(min(count, len(self.threads)))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._jobs)
                if self._closed:
                    return
                job = self._jobs[0]
                number = job.dealt
                job.dealt += 1
                if job.dealt == job.count:
                    self._jobs.popleft()
            begun_ns = time.monotonic_ns()
            if self._log is not None:
                self._log.begin()
            job.step(number)
            if self._log is not None:
                self._log.end()
            # Nothing of the job may stay referred to from here: its memory is the user's to free.
            del job
            with self._changed:
                self.worked_ns += time.monotonic_ns() - begun_ns

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """End the threads after the steps they are at, and wait for that; closing again goes on with it.

        Args:
            patience_s: for how long. A warning says which steps take longer; their threads are left behind.
        """
        with self._lock:
            self._closed = True
            dropped, self._jobs = self._jobs, deque()
            self._changed.notify_all()
        for job in dropped:
            job.cancel()
        join_all(self.threads, patience_s)


class _Steps:
    """A job's steps and how many of them are dealt out."""

    __slots__ = ("cancel", "count", "dealt", "step")

    def __init__(self, step: Callable[[int], None], count: int, cancel: Callable[[], None]) -> None:
        self.step, self.count, self.cancel = step, count, cancel
        self.dealt = 0
