"""What another thread is making: a batch, or an answer.

Covers: its outcome, giving it up, telling who waits. Does not cover: making (emlio.receiver.making).

As `concurrent.futures.Future`, but without a lock that an interrupt could leave held (see emlio.receiver.bell).
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from emlio.receiver.bell import Bell

__all__ = ["Promise"]


class Promise:
    """One thread sets the outcome, another may give it up; of two outcomes the first counts."""

    def __init__(self) -> None:
        """Without an outcome."""
        self._bell = Bell()
        self._done = self._cancelled = False
        self._made: Any = None
        self._error: BaseException | None = None
        self._tells: deque[Callable[[Promise], None]] = deque()

    def set_result(self, made: Any) -> None:
        """It is made."""
        self._made = made
        self._finish()

    def set_exception(self, error: BaseException) -> None:
        """It cannot be made."""
        self._error = error
        self._finish()

    def cancel(self) -> None:
        """It is not wanted any more."""
        self._cancelled = True
        self._finish()

    def cancelled(self) -> bool:
        """Whether it was given up."""
        return self._cancelled

    def done(self) -> bool:
        """Whether waiting for it ends at once."""
        return self._done

    def add_done_callback(self, tell: "Callable[[Promise], None]") -> None:
        """Have this called once it is done, at once if it is."""
        self._tells.append(tell)
        if self._done:
            self._tell_all()

    def result(self, timeout_s: float | None = None) -> Any:
        """What was made; raises what prevented it, or `TimeoutError`. One thread at a time."""
        if not self._done and not self._bell.wait(timeout_s) and not self._done:
            raise TimeoutError(f"an outcome must come within {timeout_s} s")
        if self._error is not None:
            raise self._error
        return self._made

    def exception(self) -> BaseException | None:
        """What prevented it, once it is done."""
        return self._error

    def _finish(self) -> None:
        self._done = True  # behind the outcome, which may be looked at from now on
        self._bell.ring()
        self._tell_all()

    def _tell_all(self) -> None:
        while True:
            try:
                tell = self._tells.popleft()  # of two threads that are here each tells some
            except IndexError:
                return
            tell(self)
