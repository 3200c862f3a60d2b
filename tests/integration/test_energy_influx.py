"""Sending a recording to InfluxDB: one of our own that notes what it hears, and a real one where there is one."""

import json
import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from emlio.energy.export.influx import InfluxTarget, influx_lines, send_lines
from emlio.energy.values.device import Domain, Method
from emlio.energy.values.run import Run
from emlio.errors import RefusedError, TransportError
from emlio_testing.energy_series import SECOND_NS, make_device, make_reading
from emlio_testing.processes import settles

RUN = Run(
    node="rack 1,s1",
    devices=(
        make_device(),
        make_device("cpu model, a=b", Domain.CPU, source="model", method=Method.ESTIMATED, error=0.5),
    ),
    interval_ns=1,
    begun_mono_ns=0,
    begun_real_ns=0,
)
READINGS = [
    make_reading(seq, seq * SECOND_NS // 10, seq * 4_000_001, None if seq == 7 else seq, cpu_busy_ns=seq)
    for seq in range(4_000)
]
READY_S = 30.0


class Listening(HTTPServer):
    """Notes what it hears and answers what it is told to."""

    heard: list[tuple[str, str | None, bytes]]
    status = 204


class Noting(BaseHTTPRequestHandler):
    server: Listening

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heard.append((self.path, self.headers["Authorization"], body))
        self.send_response(self.server.status)
        self.end_headers()
        if self.server.status != 204:
            self.wfile.write(b'{"error":"database not found"}')

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def listening() -> Iterator[Listening]:
    with Listening(("127.0.0.1", 0), Noting) as server:
        server.heard = []
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def target(server: Listening) -> InfluxTarget:
    return InfluxTarget.parse(f"http://me:secret@127.0.0.1:{server.server_port}?db=energy")


def test_lines_are_sent_some_thousands_at_a_time_and_none_twice(listening: Listening) -> None:
    lines = [f"a b={number}i {number}" for number in range(12_345)]
    assert send_lines(target(listening), lines) == 12_345
    assert len(listening.heard) == 3
    assert b"\n".join(body for _, _, body in listening.heard).decode().split("\n") == lines
    assert {(path, who) for path, who, _ in listening.heard} == {
        ("/write?db=energy&precision=ns", "Basic bWU6c2VjcmV0")
    }


def test_a_no_is_told_with_its_reason_and_without_the_password(listening: Listening) -> None:
    listening.status = 404
    with pytest.raises(RefusedError, match=r"answered 404: .*database not found") as refused:
        send_lines(target(listening), ["a b=1i 1"])
    assert refused.value.code == "404"
    assert "secret" not in str(refused.value)


def test_nobody_there_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(TransportError, match="cannot be reached"):
        send_lines(InfluxTarget.parse(f"http://127.0.0.1:{port}?db=a"), ["a b=1i 1"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
def influxdb(tmp_path: Path) -> Iterator[str]:
    """A real InfluxDB 1 with a database `energy`."""
    program = os.environ.get("EMLIO_INFLUXD") or shutil.which("influxd")
    if program is None:
        pytest.skip("influxd is not on PATH, and EMLIO_INFLUXD does not say where it is")
    port, inner = free_port(), free_port()
    (tmp_path / "influx.conf").write_text(
        f'reporting-disabled = true\nbind-address = "127.0.0.1:{inner}"\n'
        f'[meta]\ndir = "{tmp_path}/meta"\n[data]\ndir = "{tmp_path}/data"\nwal-dir = "{tmp_path}/wal"\n'
        f'[http]\nbind-address = "127.0.0.1:{port}"\nlog-enabled = false\n[monitor]\nstore-enabled = false\n'
    )
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([program, "run", "-config", str(tmp_path / "influx.conf")], stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        begun = settles(lambda: process.poll() is not None or _answers(f"{url}/ping"), READY_S)
        assert begun, (tmp_path / "log").read_text()[-2000:]
        query(url, "CREATE DATABASE energy", post=True)
        yield url
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=READY_S):
            return True
    except urllib.error.URLError:
        return False


def query(url: str, text: str, *, post: bool = False) -> list[dict[str, Any]]:
    words = urllib.parse.urlencode({"db": "energy", "q": text, "epoch": "ns"})
    request = urllib.request.Request(f"{url}/query?{words}", method="POST" if post else "GET")
    with urllib.request.urlopen(request, timeout=READY_S) as answer:
        (result,) = json.load(answer)["results"]
    assert "error" not in result, result
    return list(result.get("series", []))


def test_a_real_influxdb_keeps_all_that_was_recorded(influxdb: str) -> None:
    where = InfluxTarget.parse(f"{influxdb}?db=energy")
    for _ in range(2):  # what was sent already is not doubled
        assert send_lines(where, influx_lines(RUN, 1, READINGS)) == 3 * 4_000 - 1
    (counts,) = query(influxdb, 'SELECT count(joules) FROM emlio_energy GROUP BY "none"')
    assert counts["values"][0][1] == 2 * 4_000 - 1
    found = {
        one["tags"]["device"]: (one["tags"], one["values"])
        for one in query(influxdb, "SELECT joules FROM emlio_energy GROUP BY *")
    }
    tags, values = found["package-0"]
    assert tags == {
        "node": "rack 1,s1", "run": "1", "domain": "cpu", "device": "package-0", "source": "powercap", "method": "measured",
    }  # fmt: skip
    assert [at for at, _ in values] == [one.real_ns for one in READINGS]
    assert [round(joules * 1e6) for _, joules in values] == [one.totals[0] for one in READINGS]
    tags, values = found["cpu model, a=b"]
    assert tags["method"] == "estimated"
    assert READINGS[7].real_ns not in {at for at, _ in values}, "absent is not 0"
    (busy,) = query(influxdb, "SELECT last(cpu_busy_ns) FROM emlio_node")
    assert busy["values"][0][1] == 3_999


def test_a_real_influxdb_says_no_to_a_database_it_does_not_have(influxdb: str) -> None:
    with pytest.raises(RefusedError, match=r"database not found: .*nowhere"):
        send_lines(InfluxTarget.parse(f"{influxdb}?db=nowhere"), ["a b=1i 1"])
