"""Figures of a mount, as `emlio status` and its metrics tell them."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from emlio_testing.mounted_trees import mount_is_refused
from emlio_testing.ports import free_ports
from emlio_testing.processes import DaemonProcess

pytestmark = [
    pytest.mark.skipif(bool(mount_is_refused()), reason=mount_is_refused()),
    pytest.mark.timeout(120),
]

_EMLIO = (sys.executable, "-c", "import sys; from emlio.cli import main; sys.exit(main())")
_FILES = 400
_BYTES = 1000


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[tuple[Path, str, int]]:
    """A mounted dataset: its directory, its address, and the port of the metrics."""
    for number in range(_FILES):
        path = tmp_path / f"x/{number % 4}/{number:04}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(_BYTES))
    directory = tmp_path / "seen"
    directory.mkdir()
    ports = free_ports(3, "127.0.0.1")
    with DaemonProcess({"x": tmp_path / "x"}, folder=tmp_path, bind=f"tcp://127.0.0.1:{ports.start}") as daemon:
        address = daemon.address("x")
        port = ports.start + 2
        words = [*_EMLIO, "mount", "--order", "sequential", "--metrics", str(port), address, str(directory)]
        environment = {**os.environ, "EMLIO_FILES_SOCKETS": str(_sockets(tmp_path))}
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as process:
            try:
                assert process.stdout is not None
                assert b"is mounted at" in process.stdout.readline()
                yield directory, address, port
            finally:
                process.terminate()
                process.wait(30)


def _sockets(tmp_path: Path) -> Path:
    folder = tmp_path / "sockets"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _status(tmp_path: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_EMLIO, "status", "--over", "100ms", *map(str, words)],
        env={**os.environ, "EMLIO_FILES_SOCKETS": str(_sockets(tmp_path))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_mount_tells_what_it_pushed_and_what_was_read_on_demand(
    tmp_path: Path, mounted: tuple[Path, str, int]
) -> None:
    directory, address, port = mounted
    program = f"cat */* > {os.devnull}"
    subprocess.run(["sh", "-c", program], cwd=directory, check=True, timeout=60)
    told = _status(tmp_path, directory, "--json")
    (found,) = json.loads(told.stdout)["mounts"]
    assert (found["address"], found["directory"], found["files"]) == (address, str(directory), _FILES)
    assert found["size_bytes"] == _FILES * _BYTES
    assert found["pushed_bytes"] > _FILES * _BYTES // 2
    assert found["on_demand"] < _FILES // 2
    assert 0 < found["held_bytes"] <= found["window_bytes"] == 256 << 20
    assert (found["failed"], found["pushed_bytes_per_s"]) == (0, 0)
    (order,) = found["orders"]
    assert (order["pieces"], order["pushed"]) == (_FILES, _FILES)
    assert order["read"] == _FILES

    page = _status(tmp_path, directory).stdout
    assert page.startswith(f"{directory}: {address}, mounted for ")
    assert f"order of {_FILES} pieces: read {_FILES}, pushed {_FILES}" in page
    assert page in _with_other_times(page, _status(tmp_path).stdout)

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        metrics = answer.read().decode()
    assert f"emlio_mount_files {_FILES}.0" in metrics
    assert f"emlio_mount_pushed_bytes_total {found['pushed_bytes']}.0" in metrics
    assert 'emlio_mount_reads_total{how="error"} 0.0' in metrics


def _with_other_times(page: str, other: str) -> str:
    """Return what was told of a mount later, with the time of before."""
    first = page.partition("\n")[0]
    return "\n".join(first if line.startswith(first.partition(" ")[0]) else line for line in other.split("\n"))


def test_where_nothing_is_mounted_status_says_so(tmp_path: Path) -> None:
    told = _status(tmp_path, tmp_path)
    assert told.returncode == 2
    assert f"no process of this user serves a mount at {tmp_path}" in told.stderr
