"""When batches were decoded.

Covers: noting it, in any thread. Does not cover: making (emlio.receiver.making), what becomes of the notes
(emlio.receiver.energy_notes).
"""

import time
from threading import Lock, local

from emlio.energy.span_log import SpanLog, joined

__all__ = ["WorkLog"]


class WorkLog:
    """Takes notes from any thread: `begin` and `end` around each piece of work."""

    def __init__(self) -> None:
        """Nothing noted."""
        self._mine = local()
        self._lock = Lock()
        self._logs: list[SpanLog] = []

    def begin(self) -> None:
        """Work begins in this thread."""
        log: SpanLog | None = getattr(self._mine, "log", None)
        if log is None:
            log = self._mine.log = SpanLog()
            with self._lock:
                self._logs.append(log)
        log.begin(time.monotonic_ns())

    def end(self) -> None:
        """It is done."""
        log: SpanLog = self._mine.log
        log.end(time.monotonic_ns())

    def cut(self, from_ns: int, to_ns: int) -> list[tuple[int, int]]:
        """When at least one thread was at work, between two moments. What was before the second is forgotten."""
        with self._lock:
            logs = list(self._logs)
        return joined(piece for log in logs for piece in log.cut(from_ns, to_ns))
