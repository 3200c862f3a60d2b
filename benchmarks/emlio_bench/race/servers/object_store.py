"""A folder as a bucket of an S3 server: versitygw, which serves files as objects.

Connections stay open between requests. By default versitygw closes each one, unlike large stores,
and over a long link every request would then pay for a handshake and slow start.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError
from emlio_bench.link.contract import Link
from emlio_bench.race.needs.environments import find_program
from emlio_bench.race.servers.served import free_port, served

__all__ = ["BUCKET", "STORE", "serving_bucket", "why_no_store"]

BUCKET: Final = "race"
"""The name of the folder within the served folder, and so the name of the bucket."""

STORE: Final = "versitygw"
"""The name of the server program."""

_ACCESS: Final = "race"
_SECRET: Final = "race-secret"
"""The secret key of a server that lives for one run in a network of its own.

Consumers use the same credentials.
"""


def why_no_store(cache: Path) -> str | None:
    """Return what is missing, or None. The race builds the server if Go is installed."""
    if find_program(STORE, cache) is not None or find_program("go", cache) is not None:
        return None
    return f"needs {STORE}, an S3 server, or Go (1.22 or newer) to make it with"


@contextmanager
def serving_bucket(folder: Path, link: Link, cache: Path) -> Generator[str, None, None]:
    """Serve `folder`, which contains the bucket, while the block lasts; yield the store's URL.

    Args:
        folder: folder whose subfolders are buckets.
        link: link at whose storage end the server runs.
        cache: folder of the server program.
    """
    program = find_program(STORE, cache)
    if program is None:
        raise ConfigError(f"an object store needs {STORE}, which is not made")
    port = free_port(link.storage)
    command = [program, "--port", f"{link.storage.listen}:{port}", "--access", _ACCESS]
    command += ["--secret", _SECRET, "--keep-alive", "--quiet", "posix", "--nometa", str(folder)]
    with served(STORE, command, link, port):
        yield f"http://{link.storage.address}:{port}"
