"""`Failures`, what is logged of a source that fails."""

import logging
import time
from threading import Lock
from typing import Final

__all__ = ["Failures"]

_log = logging.getLogger(__name__)

_AGAIN_S: Final = 10.0
_MOST: Final = 100


class Failures:
    """Logs each reason once for an outage, not for each read and each push. Threads may share it.

    An outage ends with the first bytes that come; another one within ten seconds is the same.

    Attributes:
        reads: that failed.
    """

    def __init__(self, directory: str) -> None:
        """See the class; `directory` is that of the mount."""
        self._directory = directory
        self.reads = 0
        self._lock = Lock()
        self._said: set[str] = set()
        self._since = 0.0

    def tell(self, reason: object, *, reads: int = 0) -> None:
        """Files could not be read, for this reason; so many reads of programs failed."""
        text = str(reason)
        with self._lock:
            self.reads += reads
            if text in self._said or len(self._said) >= _MOST:
                return
            self._said.add(text)
            self._since = time.monotonic()
        _log.warning("files at %s cannot be read: %s", self._directory, text)

    def end(self) -> None:
        """Bytes have come."""
        if self._said and time.monotonic() - self._since > _AGAIN_S:
            with self._lock:
                self._said.clear()
