"""An HTTP endpoint for Prometheus and for health checks.

Covers: requests and answers, as bytes; the socket. Does not cover: connections
(emlio.metrics.socket_waiter), the content of pages.
"""

import errno
import ipaddress
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from emlio.errors import ConfigError
from emlio.listeners import listening_process
from emlio.metrics.socket_waiter import Answer

__all__ = ["HTTP_PATIENCE_NS", "Page", "http_answer", "is_loopback", "listen_at", "parse_address"]

HTTP_PATIENCE_NS = 10_000_000_000
"""Time limit of a connection. A scrape takes milliseconds."""

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_REQUEST = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.[01]")
_ADDRESS = re.compile(r"(?:(?P<host>[^\[\]:\s]+|\[[^\[\]\s]+\]):)?(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The answer to a request for a page."""

    text: str
    status: str = "200 OK"


def http_answer(heard: bytes, pages: Mapping[str, Callable[[], Page]]) -> Answer | None:
    """Answer a request; None until it is complete. The connection closes after the answer.

    Args:
        heard: the bytes received so far.
        pages: make the pages, by path. They must not raise.
    """
    head, end, _ = heard.partition(b"\r\n\r\n")
    if not end:
        return None
    match = _REQUEST.fullmatch(head.partition(b"\r\n")[0])
    if match is None:
        return _http("400 Bad Request", "must be a request of HTTP/1.1\n", b"GET")
    method, target = match[1], match[2].partition(b"?")[0]
    if method not in (b"GET", b"HEAD"):
        return _http("405 Method Not Allowed", "must be GET\n", method)
    make = pages.get(target.decode("ascii", "replace"))
    if make is None:
        return _http("404 Not Found", f"must be {' or '.join(pages)}\n", method)
    page = make()
    return _http(page.status, page.text, method)


def _http(status: str, text: str, method: bytes) -> Answer:
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {_TEXT}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return Answer(reply=head.encode() + (b"" if method == b"HEAD" else body), rest=None)


def parse_address(text: object) -> tuple[str, int]:
    """Parse HOST:PORT, or a port of 127.0.0.1."""
    match = _ADDRESS.fullmatch(str(text).strip())
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(f"the address of the metrics must be [HOST:]PORT, like 9477 or 0.0.0.0:9477, got {text!r}")
    return (match["host"] or "127.0.0.1").strip("[]"), int(match["port"])


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen_at(host: str, port: int) -> socket.socket:
    """Return a socket that listens there.

    Raises:
        ConfigError: the address cannot be used.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=8)
    except OSError as error:
        by = listening_process(port) if error.errno == errno.EADDRINUSE else ""
        raise ConfigError(f"metrics cannot be served at {host}:{port}: {error.strerror or error}{by}") from error
