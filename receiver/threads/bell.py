"""A wake-up for one thread that a signal cannot leave half done.

`threading.Condition` and classes built on it (`Event`, `Future`, `Queue`) take their locks in
Python code. A signal handler that raises in between leaves the lock held, and the next thread that
wants it waits forever. So the user's thread uses none of them; a lock's own methods are in C, and
so is its `with`.

Covers: ringing, waiting. Does not cover: the condition that is waited for, which must be checked
again after each wait.
"""

from threading import TIMEOUT_MAX, Lock

__all__ = ["Bell"]


class Bell:
    """A wake-up: any thread may `ring`, one thread waits.

    A ring before the wait ends the wait at once. Several rings count as one.
    """

    def __init__(self) -> None:
        """Begin without a ring."""
        self._silence = Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """End the current wait, or the next one."""
        try:
            self._silence.release()
        except RuntimeError:
            return  # it has rung already

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a ring and take it; return whether there was one in time.

        None: no time limit.
        """
        return self._silence.acquire(timeout=-1 if timeout_s is None else min(max(timeout_s, 0.0), TIMEOUT_MAX))
