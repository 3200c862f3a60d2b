"""A file server over HTTP: python -m emlio_bench.race.servers.file_server FOLDER ADDRESS PORT.

It is used if nginx is not installed. Files go from the page cache to the socket by sendfile, with
one thread for each connection. Connections stay open between requests.
"""

import os
import re
import socket
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

__all__ = ["FileServer", "main"]

_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)")
_CHUNK_BYTES: Final = 1 << 20


class FileServer(ThreadingHTTPServer):
    """A server for one folder.

    Attributes:
        folder: the folder.
    """

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, folder: Path, address: tuple[str, int]) -> None:
        """Bind and listen.

        Args:
            folder: the folder to serve.
            address: address and port; port 0 for any port.
        """
        self.folder = folder.resolve()
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because that would take time in every request."""

    def _answer(self, *, body: bool) -> None:
        assert isinstance(self.server, FileServer)
        folder = self.server.folder
        path = (folder / unquote(urlsplit(self.path).path).lstrip("/")).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            wanted = _span(self.headers.get("Range"), size)
            if wanted is None:
                self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
                self.send_header("Content-Range", f"bytes */{size}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            begin, after = wanted
            whole = "Range" not in self.headers
            self.send_response(HTTPStatus.OK if whole else HTTPStatus.PARTIAL_CONTENT)
            self.send_header("Content-Length", str(after - begin))
            self.send_header("Accept-Ranges", "bytes")
            if not whole:
                self.send_header("Content-Range", f"bytes {begin}-{after - 1}/{size}")
            self.end_headers()
            while body and begin < after:
                begin += os.sendfile(self.connection.fileno(), file.fileno(), begin, min(after - begin, _CHUNK_BYTES))


def _span(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the requested bytes as [begin, after); None if the range is invalid or empty."""
    if header is None:
        return 0, size
    match = _RANGE.fullmatch(header.strip())
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        return max(size - int(match[2]), 0), size
    begin, after = int(match[1]), min(int(match[2]) + 1, size) if match[2] else size
    return (begin, after) if begin < after else None


def main(folder: str, address: str, port: str) -> None:
    """Serve until this process is ended."""
    with FileServer(Path(folder), (address, int(port))) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
