"""The times at which batches were decoded.

Covers: noting them, in any thread. Does not cover: making batches (emlio.receiver.batches.makers),
the use of the notes (emlio.receiver.timing.epoch_notes).
"""

import time
from collections.abc import Callable
from functools import wraps
from threading import Lock, local
from typing import ParamSpec, TypeVar

from emlio.energy.job.span_log import SpanLog, joined
from emlio.receiver.timing.observers import WorkObserver

__all__ = ["WorkLog"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class WorkLog(WorkObserver):
    """Notes of work in any thread."""

    def __init__(self) -> None:
        """Begin without notes."""
        self._mine = local()
        self._lock = Lock()
        self._logs: list[SpanLog] = []

    def begin(self) -> None:
        """See `WorkObserver`."""
        log: SpanLog | None = getattr(self._mine, "log", None)
        if log is None:
            log = SpanLog()
            with self._lock:
                self._logs.append(log)
            self._mine.log = log
        log.begin(time.monotonic_ns())

    def end(self) -> None:
        """See `WorkObserver`."""
        log: SpanLog | None = getattr(self._mine, "log", None)
        if log is not None:  # `begin` may have been interrupted
            log.end(time.monotonic_ns())

    def observed(self, work: Callable[_P, _T], **about: int) -> Callable[_P, _T]:
        """See `WorkObserver`."""

        @wraps(work)
        def noted(*args: _P.args, **options: _P.kwargs) -> _T:
            self.begin()
            try:
                return work(*args, **options)
            finally:
                self.end()

        return noted

    def cut(self, from_ns: int, to_ns: int) -> list[tuple[int, int]]:
        """Return when at least one thread was at work, between two times.

        Notes before the second time are dropped.
        """
        with self._lock:
            logs = list(self._logs)
        return joined(piece for log in logs for piece in log.cut(from_ns, to_ns))
