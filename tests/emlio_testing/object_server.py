"""A real S3 server for tests: versitygw, which keeps objects as files of a folder.

Covers: finding or building its program, starting and stopping it, putting objects. Does not cover:
faults (emlio_testing.object_proxy).

The program is looked for in $EMLIO_VERSITYGW, on PATH and in ~/.cache/emlio-tests/bin. If it is in
none of them, and Go is installed, it is built into the last, which takes about two minutes, once.
"""

import fcntl
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emlio.errors import EmlioError
from emlio_testing.ports import free_ports

__all__ = ["ACCESS_KEY", "SECRET_KEY", "ObjectServer", "object_server"]

ACCESS_KEY = "testing-access"
SECRET_KEY = "not-to-be-printed-7f3a"
_MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_PLACE = Path("~/.cache/emlio-tests/bin").expanduser()
_START_S = 20.0
_BUILD_S = 540.0


class ObjectServer:
    """A running server with one bucket, "data".

    Attributes:
        port: on 127.0.0.1.
        folder: the bucket's objects as files.
    """

    def __init__(self, port: int, folder: Path) -> None:
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
        from obstore.store import S3Store

        store = S3Store(
            "data",
            endpoint=f"http://127.0.0.1:{self.port}",
            region="us-east-1",
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            client_options={"allow_http": True},
        )
        obstore.put(store, name, data)

    def put_folder(self, folder: Path, prefix: str) -> None:
        """Put all files of a folder, under the names that they have in it."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())

    def remove(self, name: str) -> None:
        """Remove an object."""
        (self.folder / name).unlink()


def _program() -> str:
    """Return the server's program, or skip the test."""
    for place in (os.environ.get("EMLIO_VERSITYGW"), shutil.which("versitygw"), str(_PLACE / "versitygw")):
        if place and os.access(place, os.X_OK):
            return place
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not os.access(go, os.X_OK):
        pytest.skip("no S3 server: neither versitygw nor go is installed; set EMLIO_VERSITYGW to its program")
    _PLACE.mkdir(parents=True, exist_ok=True)
    with (_PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of tests in other processes, one builds
        if not (_PLACE / "versitygw").exists():
            built = subprocess.run(
                [go, "install", _MODULE],
                env={**os.environ, "GOBIN": str(_PLACE)},
                capture_output=True,
                text=True,
                timeout=_BUILD_S,
                check=False,
            )
            if built.returncode:
                pytest.skip(f"no S3 server: versitygw cannot be built: {built.stderr[-300:]}")
    return str(_PLACE / "versitygw")


@contextmanager
def object_server(folder: Path) -> Generator[ObjectServer]:
    """Run a server that keeps its bucket below a folder; skip the test if there is no program."""
    pytest.importorskip("obstore", reason="no client for buckets: obstore is not installed")
    program = _program()
    bucket = folder / "buckets" / "data"
    bucket.mkdir(parents=True)
    (port,) = free_ports(1, "127.0.0.1")
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(bucket.parent)],
            env={**os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY},
            stdout=log,
            stderr=log,
        )
    try:
        _wait(process, port)
        yield ObjectServer(port, bucket)
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
