"""The metrics endpoint of a daemon, with its health checks /healthz and /readyz.

It serves from before the datasets are open until the daemon has ended.

Covers: asking the control thread from another one, what counts as ready. Does not cover: the
metrics (emlio.daemon.metrics.families), HTTP (emlio.metrics).
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from threading import Lock
from typing import Final, Self, TypeVar

from emlio.clock import SystemClock
from emlio.daemon.config import DaemonConfig
from emlio.daemon.control.status.report import DaemonFigures
from emlio.daemon.control.thread import Control
from emlio.daemon.metrics.families import DaemonFamilies
from emlio.daemon.metrics.live import LivePage
from emlio.metrics.address import is_loopback
from emlio.metrics.families import Family
from emlio.metrics.server import MetricsServer, Page

__all__ = ["MetricsEndpoint"]

Answer = TypeVar("Answer")
_LOG = logging.getLogger("emlio.daemon")
_PATIENCE_S: Final = 1.0
"""The control thread answers in milliseconds, at most in some tens of them under a flood."""


class MetricsEndpoint:
    """Serves the figures of one daemon until it is closed.

    Attributes:
        url: the address of the metrics.
    """

    def __init__(self, host: str, port: int) -> None:
        """Begin to serve; until `served_by` the daemon is alive and not ready.

        Raises:
            ConfigError: the address cannot be used, or prometheus_client is not installed.
        """
        self._control: Control | None = None
        self._families = DaemonFamilies()
        live = LivePage(lambda: self._asked(lambda control: control.status()), SystemClock())
        showing = Lock()

        def one_by_one(make: Callable[[], Answer]) -> Callable[[], Answer]:
            def made() -> Answer:
                with showing:
                    return make()

            return made

        def tick() -> None:
            # The thread that accepts connections calls this: it must not wait for one that shows the page.
            if live.is_due() and showing.acquire(blocking=False):
                try:
                    live.tick()
                finally:
                    showing.release()

        pages = {"/readyz": self.ready, "/": live.page, "/status.json": one_by_one(live.answer)}
        self._server = MetricsServer(host, port, self.families, pages, tick)
        self.url = self._server.url
        _LOG.info("metrics are served at %s", self.url, extra={"url": self.url})
        if not is_loopback(host):
            _LOG.warning("metrics are served without a password to every client that can reach %s", self.url)

    @classmethod
    def of(cls, config: DaemonConfig) -> Self | None:
        """Return the endpoint that the configuration asks for, if it does."""
        return cls(*config.metrics) if config.metrics is not None else None

    def served_by(self, control: Control) -> None:
        """Show the figures of this control thread, which is going to run."""
        self._control = control

    def ready(self) -> Page:
        """Return whether the daemon takes new sessions."""
        if self._control is None:
            return _not_ready("datasets are being opened")
        figures = self._figures()
        if figures is None:
            return _not_ready(f"the control thread does not answer within {_PATIENCE_S:g} s")
        if figures.draining:
            return _not_ready("draining")
        if not figures.generations:
            return _not_ready("no dataset is served")
        return Page(text="ready\n")

    def families(self) -> list[Family]:
        """Return the metrics; none before the datasets are open, or if the control thread does not answer."""
        figures = self._figures()
        return self._families.of(figures) if figures is not None else []

    def _figures(self) -> DaemonFigures | None:
        return self._asked(lambda control: control.figures())

    def _asked(self, ask: Callable[[Control], Answer]) -> Answer | None:
        """Return what the control thread answers; None if it does not."""
        control = self._control
        if control is None:
            return None
        answer: Future[Answer] = Future()

        def tell() -> None:
            if not answer.set_running_or_notify_cancel():
                return  # no one waits for it any more
            try:
                answer.set_result(ask(control))
            except Exception as error:  # noqa: BLE001  # the thread that waits must hear of it
                answer.set_exception(error)

        control.call(tell)
        try:
            return answer.result(_PATIENCE_S)
        except LateError:
            answer.cancel()
            return None

    def close(self) -> None:
        """Stop serving. Closing again does nothing."""
        self._server.close()


def _not_ready(reason: str) -> Page:
    return Page(status="503 Service Unavailable", text=f"not ready: {reason}\n")
