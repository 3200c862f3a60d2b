"""A thread that serves pages over HTTP: metrics and health checks.

Covers: the thread, its end, pages that fail. Does not cover: requests (emlio.metrics.http),
connections and their limits (emlio.metrics.socket_waiter).
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from threading import Thread
from types import TracebackType
from typing import Self

from emlio.clock import Clock, SystemClock
from emlio.metrics.http import HTTP_PATIENCE_NS, Page, http_answer, listen_at
from emlio.metrics.socket_waiter import SocketWaiter
from emlio.thread_name import show_thread_name

__all__ = ["MetricsServer"]

_LOG = logging.getLogger("emlio.metrics")
_TURN_NS = 3_600_000_000_000
"""The waiter wants a moment to wait for; any does."""

_FAILED = Page(status="500 Internal Server Error", text="the page cannot be made, see the log\n")


class MetricsServer:
    """Serves pages until it is closed. Use it with `with`.

    Attributes:
        host, port: where it listens.
    """

    def __init__(
        self, host: str, port: int, pages: Mapping[str, Callable[[], Page]], *, clock: Clock | None = None
    ) -> None:
        """Begin to serve.

        Args:
            host: the address to listen at.
            port: the port; 0 lets the system choose.
            pages: make the pages, by path; called in the server's thread.
            clock: for the time limits of connections.

        Raises:
            ConfigError: the address cannot be used.
        """
        self._clock = clock if clock is not None else SystemClock()
        listener = listen_at(host, port)
        self.host = host
        self.port: int = listener.getsockname()[1]
        self._closed = False
        self._waiter = SocketWaiter(self._clock)
        guarded = {path: partial(_made, make) for path, make in pages.items()}
        self._waiter.open(listener, lambda heard: http_answer(heard, guarded), patience_ns=HTTP_PATIENCE_NS)
        self._thread = Thread(target=self._run, name="emlio-metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the metrics."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"

    def _run(self) -> None:
        show_thread_name()
        with self._waiter:
            while not self._closed:
                self._waiter.wait(self._clock.monotonic_ns() + _TURN_NS)

    def close(self) -> None:
        """Stop serving. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            self._waiter.wake()
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _made(make: Callable[[], Page]) -> Page:
    try:
        return make()
    except Exception:  # noqa: BLE001  # one page must not end the thread of all
        _LOG.exception("a page of the metrics cannot be made")
        return _FAILED
