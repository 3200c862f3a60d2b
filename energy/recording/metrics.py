"""An HTTP endpoint for Prometheus.

Covers: requests and answers, as bytes; the socket. Does not cover: connections
(emlio.energy.recording.socket_waiter), the text (emlio.energy.recording.prometheus).
"""

import ipaddress
import re
import socket
from collections.abc import Callable

from emlio.energy.recording.socket_waiter import Answer
from emlio.errors import ConfigError

__all__ = ["HTTP_PATIENCE_NS", "http_answer", "is_loopback", "listen_at", "parse_address"]

HTTP_PATIENCE_NS = 10_000_000_000
"""Time limit of a connection. A scrape takes milliseconds."""

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_REQUEST = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.[01]")
_ADDRESS = re.compile(r"(?:(?P<host>[^\[\]:]+|\[[^\[\]]+\]):)?(?P<port>\d{1,5})")


def http_answer(heard: bytes, text: Callable[[], str]) -> Answer | None:
    """Answer a request; None until it is complete. The connection closes after the answer.

    Args:
        heard: the bytes received so far.
        text: makes the content of /metrics.
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
    if target != b"/metrics":
        return _http("404 Not Found", "must be /metrics\n", method)
    return _http("200 OK", text(), method)


def _http(status: str, text: str, method: bytes) -> Answer:
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {_TEXT}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return Answer(reply=head.encode() + (b"" if method == b"HEAD" else body), rest=None)


def parse_address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT, or a port of 127.0.0.1."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(f"the address of the metrics must be HOST:PORT, like '127.0.0.1:9477', got {text!r}")
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
        raise ConfigError(f"metrics cannot be served at {host}:{port}: {error}") from error
