"""The pages that a daemon serves over HTTP: /metrics, /healthz and /readyz.

Covers: asking the control thread from another one, what counts as ready. Does not cover: the
metrics (emlio.daemon.metrics.families), HTTP (emlio.metrics).
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from typing import Any, Final

from emlio.daemon.control.status.report import DaemonFigures
from emlio.daemon.control.thread import Control
from emlio.daemon.metrics.families import DaemonFamilies
from emlio.metrics.http import Page
from emlio.metrics.library import MetricsText, library_metrics

__all__ = ["DaemonPages"]

_PATIENCE_S: Final = 1.0
"""The control thread answers in milliseconds, at most in some tens of them under a flood."""

_NOT_READY: Final = "503 Service Unavailable"


class DaemonPages:
    """The pages. Used by the thread that serves them; `served_by` by another.

    They can be served before the daemon has opened its datasets: then it is alive and not ready.
    """

    def __init__(self) -> None:
        """See the class.

        Raises:
            ConfigError: prometheus_client is not installed.
        """
        self._control: Control | None = None
        self._families = DaemonFamilies()
        self._text = MetricsText(self)

    def served_by(self, control: Control) -> None:
        """Show the figures of this control thread, which is going to run."""
        self._control = control

    @property
    def pages(self) -> Mapping[str, Callable[[], Page]]:
        """The pages by path."""
        return {
            "/metrics": lambda: Page(text=self._text()),
            "/healthz": lambda: Page(text="ok\n"),
            "/readyz": self.ready,
        }

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

    def collect(self) -> Iterable[Any]:
        """Return the metrics; none before the datasets are open, or if the control thread does not answer."""
        figures = self._figures()
        return library_metrics(self._families.of(figures) if figures is not None else [])

    def _figures(self) -> DaemonFigures | None:
        control = self._control
        if control is None:
            return None
        answer: Future[DaemonFigures] = Future()

        def tell() -> None:
            try:
                answer.set_result(control.figures())
            except Exception as error:  # noqa: BLE001  # the thread that waits must hear of it
                answer.set_exception(error)

        control.call(tell)
        try:
            return answer.result(_PATIENCE_S)
        except LateError:
            return None


def _not_ready(reason: str) -> Page:
    return Page(status=_NOT_READY, text=f"not ready: {reason}\n")
