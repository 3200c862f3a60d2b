"""Real S3 servers for tests: versitygw, a Go program that scripts/test builds, and moto, which pip installs.

`python -m emlio_testing.object_server` builds versitygw if Go is installed.
"""

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from emlio.errors import EmlioError
from emlio_testing.ports import free_ports

__all__ = ["ACCESS_KEY", "SECRET_KEY", "ObjectServer", "object_server"]

ACCESS_KEY = "testing-access"
SECRET_KEY = "not-to-be-printed-7f3a"
_START_S = 60.0


class ObjectServer:
    """A running server with one bucket, "data".

    Attributes:
        kind: "versitygw" or "moto", which accepts any credentials.
        port: on 127.0.0.1.
        folder: the one that the test gave.
    """

    def __init__(self, kind: str, port: int, folder: Path) -> None:
        self.kind = kind
        self.port = port
        self.folder = folder

    def address(self, prefix: str, *, port: int | None = None, **options: str) -> str:
        """Return a dataset's address.

        Args:
            prefix: in the bucket.
            port: of a proxy in front of the server.
            options: further ones.
        """
        given = {"endpoint": f"http://127.0.0.1:{port or self.port}", "allow_http": "true", "region": "us-east-1"}
        return f"s3://data/{prefix}?" + "&".join(f"{name}={value}" for name, value in (given | options).items())

    def put(self, name: str, data: bytes) -> None:
        """Put an object, by a request, so that it has an entity tag."""
        import obstore

        obstore.put(self._store(), name, data)

    def put_folder(self, folder: Path, prefix: str) -> None:
        """Put all files of a folder, under the names that they have in it."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())

    def remove(self, name: str) -> None:
        """Remove an object."""
        import obstore

        obstore.delete(self._store(), name)

    def _store(self) -> Any:
        from obstore.store import S3Store

        return S3Store(
            "data",
            endpoint=f"http://127.0.0.1:{self.port}",
            region="us-east-1",
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            client_options={"allow_http": True},
        )


def _command(kind: str, port: int, folder: Path) -> Sequence[str] | None:
    """Return the command of a server, or None if it is not installed."""
    if kind == "moto":
        installed = find_spec("moto") is not None and find_spec("flask_cors") is not None
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)] if installed else None
    from emlio_bench.race.needs.environments import cache_folder, find_program

    program = os.environ.get("EMLIO_VERSITYGW") or find_program("versitygw", cache_folder(None, os.environ))
    return [program, "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(folder)] if program else None


@contextmanager
def object_server(folder: Path, *kinds: str) -> Generator[ObjectServer]:
    """Run a server with one bucket, and have its credentials in the environment; skip the test if there is none.

    Args:
        folder: an existing folder for what the server keeps.
        kinds: the servers that will do, "versitygw" or "moto", the best first; by default both.
    """
    pytest.importorskip("obstore", reason="no client for buckets: obstore is not installed")
    kinds = kinds or ("versitygw", "moto")
    buckets = folder / "buckets"
    (port,) = free_ports(1, "127.0.0.1")
    commands = {kind: command for kind in kinds if (command := _command(kind, port, buckets)) is not None}
    if not commands:
        pytest.skip(f"no S3 server: {' or '.join(kinds)} is not installed; scripts/test makes what Go and pip can make")
    kind, command = next(iter(commands.items()))
    (buckets / "data").mkdir(parents=True)
    with (folder / "server.log").open("wb") as log:
        environment = {**os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _wait(process, port)
        if kind == "moto":
            bucket = http.client.HTTPConnection("127.0.0.1", port, timeout=_START_S)
            bucket.request("PUT", "/data")
            bucket.getresponse().read()
            bucket.close()
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            patched.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
            yield ObjectServer(kind, port, folder)
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline_s = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < deadline_s:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise EmlioError(f"the S3 server did not start within {_START_S} s, exit status {process.poll()}")


def _build() -> int:
    """Build versitygw unless it is there; return an exit status."""
    from emlio_bench.race.needs.environments import cache_folder, find_program, make_program

    def carry_out(_: str, command: Sequence[str]) -> None:
        sys.stderr.write("Building versitygw, an S3 server for tests, with Go: about two minutes, once\n")
        subprocess.run(command, check=True)

    cache = cache_folder(None, os.environ)
    try:
        if not find_program("versitygw", cache):
            make_program("versitygw", cache, carry_out)
    except (EmlioError, OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"Tests that need versitygw, an S3 server, are skipped: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(_build())
