"""The outcome of another thread's work: a batch, or an answer.

Like `concurrent.futures.Future`, but without a lock that an interrupt could leave held (see
emlio.receiver.threads.bell).

Covers: setting the outcome, cancelling, waiting. Does not cover: the work
(emlio.receiver.batches.makers).
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from emlio.receiver.threads.bell import Bell

__all__ = ["Promise"]


class Promise:
    """An outcome that one thread sets and another may cancel; the first of two outcomes counts."""

    def __init__(self) -> None:
        """Begin without an outcome."""
        self._bell = Bell()
        self._done = self._cancelled = False
        self._made: Any = None
        self._error: BaseException | None = None
        self._tells: deque[Callable[[Promise], None]] = deque()

    def set_result(self, made: Any) -> None:
        """Set the result."""
        self._made = made
        self._finish()

    def set_exception(self, error: BaseException) -> None:
        """Set the error."""
        self._error = error
        self._finish()

    def cancel(self) -> None:
        """Cancel: the result is no longer wanted."""
        self._cancelled = True
        self._finish()

    def cancelled(self) -> bool:
        """Return whether it was cancelled."""
        return self._cancelled

    def done(self) -> bool:
        """Return whether there is an outcome."""
        return self._done

    def add_done_callback(self, tell: "Callable[[Promise], None]") -> None:
        """Have this called once there is an outcome; at once if there is one."""
        self._tells.append(tell)
        if self._done:
            self._tell_all()

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait for the result and return it; raise its error, or `TimeoutError`.

        One thread at a time.
        """
        if not self._done and not self._bell.wait(timeout_s) and not self._done:
            raise TimeoutError(f"no result within {timeout_s} s")
        if self._error is not None:
            raise self._error
        return self._made

    def exception(self) -> BaseException | None:
        """Return the error, or None; valid once there is an outcome."""
        return self._error

    def _finish(self) -> None:
        self._done = True  # set after the outcome, which may be read from now on
        self._bell.ring()
        self._tell_all()

    def _tell_all(self) -> None:
        while True:
            try:
                tell = self._tells.popleft()  # two threads may be here at once; each takes some
            except IndexError:
                return
            tell(self)
