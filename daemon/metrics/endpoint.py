"""The HTTP endpoint of a daemon, from before its datasets are open until it has ended.

Covers: whether there is one, its log, its end. Does not cover: the pages
(emlio.daemon.metrics.pages).
"""

import logging
from typing import Self

from emlio.daemon.config import DaemonConfig
from emlio.daemon.control.thread import Control
from emlio.daemon.metrics.pages import DaemonPages
from emlio.metrics.http import is_loopback
from emlio.metrics.server import MetricsServer

__all__ = ["MetricsEndpoint"]

_LOG = logging.getLogger("emlio.daemon")


class MetricsEndpoint:
    """Serves the pages of one daemon until it is closed."""

    def __init__(self, host: str, port: int) -> None:
        """Begin to serve; until `served_by` the daemon is alive and not ready.

        Raises:
            ConfigError: the address cannot be used, or prometheus_client is not installed.
        """
        self._pages = DaemonPages()
        self._server = MetricsServer(host, port, self._pages.pages)
        _LOG.info("metrics are served at %s", self.url, extra={"url": self.url})
        if not is_loopback(host):
            _LOG.warning("metrics are served without a password to every client that can reach %s", self.url)

    @classmethod
    def of(cls, config: DaemonConfig) -> Self | None:
        """Return the endpoint that the configuration asks for, if it does."""
        return cls(*config.metrics) if config.metrics is not None else None

    @property
    def url(self) -> str:
        """The address of the metrics."""
        return self._server.url

    def served_by(self, control: Control) -> None:
        """Show the figures of this control thread, which is going to run."""
        self._pages.served_by(control)

    def close(self) -> None:
        """Stop serving. Closing again does nothing."""
        self._server.close()
