"""A folder served over HTTP at one end of a link, by nginx."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError
from emlio_bench.link.contract import Link
from emlio_bench.race.needs.environments import find_program
from emlio_bench.race.servers.served import free_port, served

__all__ = ["serving_folder", "why_no_web_server"]

_CONFIGURATION: Final = """
daemon off;
{user}
worker_processes 2;
pid {state}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_timeout 60s;
    keepalive_requests 1000000;
    open_file_cache max=100000 inactive=600s;
    client_body_temp_path {state}/body;
    proxy_temp_path {state}/proxy;
    fastcgi_temp_path {state}/fastcgi;
    uwsgi_temp_path {state}/uwsgi;
    scgi_temp_path {state}/scgi;
    server {{ listen {address}:{port} backlog=1024; root {folder}; autoindex on; }}
}}
"""


def why_no_web_server(cache: Path) -> str | None:
    """Return what is missing to serve files, or None."""
    return None if find_program("nginx", cache) is not None else "needs nginx: apt-get install nginx"


@contextmanager
def serving_folder(folder: Path, link: Link, cache: Path) -> Generator[str, None, None]:
    """Serve a folder while the block lasts; yield its URL.

    Args:
        folder: folder to serve.
        link: link at whose storage end the server runs.
        cache: folder of the server program.
    """
    nginx = find_program("nginx", cache)
    if nginx is None:
        raise ConfigError(f"a web server {why_no_web_server(cache)}")
    address, port = link.storage.listen, free_port(link.storage)
    # Otherwise root's workers may not read the user's folders.
    user = "user root;" if os.geteuid() == 0 else ""
    with tempfile.TemporaryDirectory(prefix="emlio-race-web-") as state:
        configuration = Path(state) / "nginx.conf"
        text = _CONFIGURATION.format(user=user, state=state, address=address, port=port, folder=folder.resolve())
        configuration.write_text(text, encoding="utf-8")
        with served("nginx", [nginx, "-e", "stderr", "-p", state, "-c", str(configuration)], link, port):
            yield f"http://{link.storage.address}:{port}"
