"""An HTTP server for metrics and health checks."""

import errno
import logging
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from socketserver import TCPServer
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Final, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from emlio.errors import ConfigError
from emlio.listeners import listening_process
from emlio.metrics.families import Family
from emlio.metrics.library import metrics_app
from emlio.open_limits import is_used_up
from emlio.thread_name import show_thread_name

__all__ = ["MetricsServer", "Page"]

_LOG = logging.getLogger("emlio.metrics")
_MOST_CONNECTIONS: Final = 32
_MOST_OF_ONE: Final = 8
"""So many at once from one address: one client must not keep out the health checks of others."""

_PATIENCE_S: Final = 10.0
"""The time limit of a connection. A scrape takes milliseconds."""

_REST_S: Final = 0.2
"""The pause before the next try if no descriptor is left for a connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The answer to a request.

    Attributes:
        text: its content.
        status: the status of HTTP.
        kind: the type of the content.
        headers: further headers.
    """

    text: str
    status: str = "200 OK"
    kind: str = "text/plain"
    headers: tuple[tuple[str, str], ...] = ()


class MetricsServer:
    """Serves until it is closed. Use it with `with`.

    Attributes:
        host, port: where it listens.
    """

    def __init__(
        self,
        host: str,
        port: int,
        families: Callable[[], Iterable[Family]],
        checks: Mapping[str, Callable[[], Page]] | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin to serve the families at /metrics.

        Args:
            host: the address to listen at.
            port: the port; 0 lets the system choose.
            families: called for each scrape, by one thread at a time.
            checks: make other pages, by path; /healthz is there by default.
            tick: called about twice a second.

        Raises:
            ConfigError: the address cannot be used, or prometheus_client is not installed.
        """
        pages = {"/healthz": lambda: Page(text="ok\n"), **(checks or {})}
        scraping = Lock()

        def one_by_one() -> list[Family]:
            with scraping:
                return list(families())

        app = _app(metrics_app(one_by_one), pages)
        try:
            self._server = _Server(host, port, app, tick)
        except OSError as error:
            by = listening_process(port) if error.errno == errno.EADDRINUSE else ""
            raise ConfigError(f"metrics cannot be served at {host}:{port}: {error.strerror or error}{by}") from error
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._run, name="emlio-metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the metrics."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"

    def _run(self) -> None:
        show_thread_name()
        self._server.serve_forever()

    def close(self) -> None:
        """Stop serving. Closing again does nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _app(
    metrics: Callable[..., Iterable[bytes]], pages: Mapping[str, Callable[[], Page]]
) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        try:
            if path == "/metrics":
                return metrics(environ, start_response)
            make = pages.get(path)
            page = Page(text=f"no such page: {path}\n", status="404 Not Found") if make is None else make()
        except Exception:  # noqa: BLE001  # one page must not end the service of all
            _LOG.exception("a page of the metrics cannot be made")
            page = Page(text="the page cannot be made, see the log\n", status="500 Internal Server Error")
        start_response(page.status, [("Content-Type", f"{page.kind}; charset=utf-8"), *page.headers])
        return [page.text.encode()]

    return app


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: scrapes come every few seconds."""


class _Server(WSGIServer):
    """A thread for each connection, up to a limit. Connections that last too long are ended."""

    request_queue_size = 64

    def __init__(self, host: str, port: int, app: Callable[..., Iterable[bytes]], tick: Callable[[], None]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._open: dict[socket.socket, tuple[Thread, float, str]] = {}
        self._tick = tick
        super().__init__((host, port), _Handler)
        self.set_app(app)

    def server_bind(self) -> None:
        """Bind, without a search for the host's name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        try:
            return super().get_request()
        except OSError as error:
            if is_used_up(error):
                time.sleep(_REST_S)  # the client is still waiting, so this would be called without end
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own."""
        host = str(client_address[0])
        own = [one for one, (_, _, other) in list(self._open.items()) if other == host]
        if len(own) >= _MOST_OF_ONE or len(self._open) >= _MOST_CONNECTIONS:
            # Those who connect and ask nothing must not keep out health checks.
            _hang_up((own if len(own) >= _MOST_OF_ONE else list(self._open))[0])
        if len(own) >= 2 * _MOST_OF_ONE or len(self._open) >= 2 * _MOST_CONNECTIONS:
            self.shutdown_request(request)
            return
        thread = Thread(target=self._serve, args=(request, client_address), name="emlio-scrape", daemon=True)
        self._open[request] = thread, time.monotonic(), host
        try:
            thread.start()
        except RuntimeError:  # the system has no thread left
            del self._open[request]
            self.shutdown_request(request)

    def _serve(self, request: socket.socket, client_address: Any) -> None:
        try:
            with suppress(OSError):  # the client is gone
                self.finish_request(request, client_address)
        finally:
            self.shutdown_request(request)
            self._open.pop(request, None)

    def service_actions(self) -> None:
        """End connections that last too long; called about twice a second."""
        try:
            self._tick()
        except Exception:  # noqa: BLE001  # the service goes on
            _LOG.exception("the figures cannot be kept")
        for request, (_, begun, _) in list(self._open.items()):
            if time.monotonic() - begun > _PATIENCE_S:
                _hang_up(request)

    def end(self) -> None:
        """Close the socket and all connections, and wait for their threads."""
        self.server_close()
        for request, (thread, *_) in list(self._open.items()):
            _hang_up(request)
            thread.join()


def _hang_up(request: socket.socket) -> None:
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
