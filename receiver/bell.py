"""A wake-up for one thread, which no signal can leave half done.

Covers: ringing, waiting. Does not cover: what is waited for, which is looked at again after each wait.

`threading.Condition` and what is built on it (`Event`, `Future`, `Queue`) take their locks in Python code. A signal's handler
that raises in the midst of that leaves the lock held, and the next thread that wants it waits for ever. So the user's thread uses
none of them; a lock's own methods are in C, and so is its `with`.
"""

from threading import TIMEOUT_MAX, Lock

__all__ = ["Bell"]


class Bell:
    """Any thread may `ring`; one waits. A ring before the wait ends it at once; several are one."""

    def __init__(self) -> None:
        """Silent."""
        self._silence = Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """End the wait, now or the next one."""
        try:
            self._silence.release()
        except RuntimeError:
            return  # it rings already

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a ring, and take it. Returns whether there was one in time; None waits as long as it takes."""
        return self._silence.acquire(timeout=-1 if timeout_s is None else min(max(timeout_s, 0.0), TIMEOUT_MAX))
