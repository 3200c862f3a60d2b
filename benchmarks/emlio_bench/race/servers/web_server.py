"""A folder served over HTTP at one end of a link.

nginx serves it, or a small server of this package if nginx is not installed.
"""

import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from emlio_bench.link.contract import Link
from emlio_bench.race.needs.environments import find_program
from emlio_bench.race.servers.served import free_port, served

__all__ = ["server_lists", "serving_folder"]

_WORKERS: Final = 2
_CONNECTIONS: Final = 1024

_CONFIGURATION: Final = """
daemon off;
{user}
worker_processes {workers};
pid {state}/nginx.pid;
error_log stderr warn;
events {{ worker_connections {connections}; }}
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


def server_lists(cache: Path) -> bool:
    """Return whether the server lists the files of a folder."""
    return find_program("nginx", cache) is not None


@contextmanager
def serving_folder(folder: Path, link: Link, cache: Path) -> Generator[str, None, None]:
    """Serve a folder while the block lasts; yield its URL.

    Args:
        folder: folder to serve.
        link: link at whose storage end the server runs.
        cache: folder of programs.
    """
    address, port = link.storage.listen, free_port(link.storage)
    nginx = find_program("nginx", cache)
    with tempfile.TemporaryDirectory(prefix="emlio-race-web-") as state:
        if nginx is None:
            command = [sys.executable, "-m", "emlio_bench.race.servers.file_server", str(folder), address, str(port)]
        else:
            configuration = Path(state) / "nginx.conf"
            configuration.write_text(
                _CONFIGURATION.format(
                    user="user root;"
                    if os.geteuid() == 0
                    else "",  # otherwise its workers may not read the user's folders
                    workers=_WORKERS,
                    connections=_CONNECTIONS,
                    state=state,
                    address=address,
                    port=port,
                    folder=folder.resolve(),
                ),
                encoding="utf-8",
            )
            command = [nginx, "-e", "stderr", "-p", state, "-c", str(configuration)]
        with served(Path(command[0]).name if nginx else "the file server", command, link, port):
            yield f"http://{link.storage.address}:{port}"
