"""A folder as a bucket of an S3 server at one end of a link: versitygw, which serves files as objects.

Connections are kept open between requests: versitygw closes each by default, which no large store does, and with a long link
that would cost every request its handshake and its slow start.

Covers: starting it, what clients must know to reach it. Does not cover: making it (emlio.benchmarks.race.environments).
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from emlio.benchmarks.link.contract import Link
from emlio.benchmarks.race.environments import find_program, make_program
from emlio.benchmarks.race.served import free_port, served

__all__ = ["BUCKET", "STORE", "serving_bucket", "why_no_store"]

BUCKET: Final = "race"
"""Name of the folder inside what is served, and so of the bucket."""

STORE: Final = "versitygw"
"""The program."""

_ACCESS: Final = "race"
_SECRET: Final = "race-secret"
"""Of a server that lives for one run in a network of its own. Consumers have the same words."""


def why_no_store(cache: Path) -> str | None:
    """What is missing, or None; `make_program` makes it where there is Go."""
    if find_program(STORE, cache) is not None:
        return None
    if find_program("go", cache) is not None:
        return f"needs {STORE}, which is not made yet"
    return f"needs {STORE}, an S3 server, or Go (1.22 or newer) to make it with"


@contextmanager
def serving_bucket(folder: Path, link: Link, cache: Path) -> Generator[str, None, None]:
    """Serve `folder`, in which BUCKET lies, while the block lasts; gives the store's URL.

    Args:
        folder: whose folders are buckets.
        link: at whose storage's end.
        cache: where the program lies or is made.
    """
    port = free_port(link.storage)
    command = [make_program(STORE, cache), "--port", f"{link.storage.listen}:{port}", "--access", _ACCESS]
    command += ["--secret", _SECRET, "--keep-alive", "--quiet", "posix", "--nometa", str(folder)]
    with served(STORE, command, link, port):
        yield f"http://{link.storage.address}:{port}"
