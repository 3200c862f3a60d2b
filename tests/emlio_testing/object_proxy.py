"""An HTTP proxy in front of an S3 server that counts requests and injects faults."""

import http.client
import random
import socket
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Self

__all__ = ["ObjectProxy"]

_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
_TIMEOUT_S = 20.0


class ObjectProxy:
    """A proxy on a port of its own. All settings may be changed at any time.

    Attributes:
        counts: requests by kind: "list", "head" or "get", and "failed", "slow" and "cut".
        failing: the part of requests that are answered with 503.
        cutting: the part whose answer ends in the middle.
        slow: the part that is delayed.
        delay_s: by how much.
        down: whether connections are closed without an answer.
    """

    def __init__(self, port: int, *, seed: int = 1) -> None:
        self.counts: Counter[str] = Counter()
        self.failing = self.cutting = self.slow = self.delay_s = 0.0
        self.down = False
        self._target = port
        self._chances = random.Random(seed)
        self._lock = Lock()
        self._closing = Event()
        self._connections: set[socket.socket] = set()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = _TIMEOUT_S

            def setup(self) -> None:
                super().setup()
                with proxy._lock:
                    proxy._connections.add(self.connection)

            def finish(self) -> None:
                with proxy._lock:
                    proxy._connections.discard(self.connection)
                super().finish()

            def do_GET(self) -> None:
                proxy._answer(self)

            def do_HEAD(self) -> None:
                proxy._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = False
            block_on_close = True
            request_queue_size = 256

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Ignore clients that go away."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="object-proxy")
        self._thread.start()

    def _draw(self, part: float) -> bool:
        with self._lock:
            return self._chances.random() < part

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        if self.down:
            handler.close_connection = True
            return
        kind = "head" if handler.command == "HEAD" else "list" if "list-type=" in handler.path else "get"
        self._count(kind)
        if self._draw(self.slow):
            self._count("slow")
            self._closing.wait(self.delay_s)
        if self._draw(self.failing):
            self._count("failed")
            self._send(handler, 503, [("Content-Type", "application/xml")], b"<Error><Code>SlowDown</Code></Error>")
            return
        link = http.client.HTTPConnection("127.0.0.1", self._target, timeout=_TIMEOUT_S)
        try:
            link.request(handler.command, handler.path, headers=dict(handler.headers.items()))
            answer = link.getresponse()
            data = answer.read()
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP]
            length = answer.getheader("Content-Length") if handler.command == "HEAD" else None
            cut = kind == "get" and len(data) > 1 and self._draw(self.cutting)
            self._send(handler, answer.status, kept, data, length=length, cut=cut)
        finally:
            link.close()

    def _send(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        headers: list[tuple[str, str]],
        data: bytes,
        *,
        length: str | None = None,
        cut: bool = False,
    ) -> None:
        handler.send_response_only(status)
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", length or str(len(data)))
        handler.end_headers()
        if cut:
            self._count("cut")
            handler.wfile.write(data[: len(data) // 2])
            handler.close_connection = True
        elif handler.command != "HEAD":
            handler.wfile.write(data)

    def close(self) -> None:
        """End all connections."""
        self._closing.set()
        self._server.shutdown()
        with self._lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # it has ended meanwhile
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
