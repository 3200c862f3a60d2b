"""`Failures`, what is logged of a source that fails."""

import logging
from threading import Lock
from typing import Final

from emlio.clock import Clock, SystemClock

__all__ = ["Failures"]

_log = logging.getLogger(__name__)

_AGAIN_NS: Final = 10_000_000_000
_MOST: Final = 100


class Failures:
    """Logs each reason once for an outage, not for each read and each push. Threads may share it.

    An outage ends with the first bytes that come; another one within ten seconds is the same.

    Attributes:
        reads: that failed.
    """

    def __init__(self, directory: str, clock: Clock | None = None) -> None:
        """See the class; `directory` is that of the mount."""
        self._directory = directory
        self.reads = 0
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._lock = Lock()
        self._said: set[str] = set()
        self._since_ns = 0

    def tell(self, reason: object, *, reads: int = 0) -> None:
        """Files could not be read, for this reason; so many reads of programs failed."""
        text = str(reason)
        with self._lock:
            self.reads += reads
            if text in self._said or len(self._said) >= _MOST:
                return
            self._said.add(text)
            self._since_ns = self._clock.monotonic_ns()
        _log.warning("files at %s cannot be read: %s", self._directory, text)

    def end(self) -> None:
        """Bytes have come."""
        if self._said and self._clock.monotonic_ns() - self._since_ns > _AGAIN_NS:
            with self._lock:
                self._said.clear()
