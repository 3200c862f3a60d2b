"""The HTTP server of metrics and health checks, over real sockets."""

import errno
import gzip
import logging
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Event, Thread
from typing import Any

import pytest

from emlio.errors import ConfigError
from emlio.metrics import server as server_module
from emlio.metrics.address import is_loopback, parse_address
from emlio.metrics.families import Family, gauge
from emlio.metrics.server import MetricsServer, Page
from emlio_testing.processes import settles

pytest.importorskip("prometheus_client")
SOON_S = 20.0


def families() -> list[Family]:
    return [gauge("joules", "Used.", [((str(number),), number) for number in range(20_000)], "n")]


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with MetricsServer("127.0.0.1", 0, families, {"/readyz": lambda: Page(text="no\n", status="503 Not")}) as made:
        yield made


def page(server: MetricsServer, path: str, **more: Any) -> tuple[int, str]:
    request = urllib.request.Request(server.url.replace("/metrics", path), **more)
    try:
        with urllib.request.urlopen(request, timeout=SOON_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_and_checks_are_served_and_nothing_else(server: MetricsServer) -> None:
    status, text = page(server, "/metrics?x=1")
    assert status == 200
    assert 'joules{n="19999"} 19999.0\n' in text
    assert page(server, "/healthz") == (200, "ok\n")
    assert page(server, "/readyz") == (503, "no\n")
    assert page(server, "/")[0] == 404
    assert page(server, "/metrics", data=b"x")[0] == 405


def test_a_scrape_may_be_compressed(server: MetricsServer) -> None:
    request = urllib.request.Request(server.url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=SOON_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        assert b"joules" in gzip.decompress(answer.read())


def test_a_page_that_cannot_be_made_is_an_error_and_the_next_one_is_served(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> list[Family]:
        if failing:
            raise ValueError("a defect")
        return []

    failing: list[int] = []
    with MetricsServer("127.0.0.1", 0, fail) as server, caplog.at_level(logging.ERROR):
        failing.append(1)
        assert page(server, "/metrics")[0] == 500
        assert page(server, "/healthz") == (200, "ok\n")
    server.close()
    assert "a defect" in caplog.text


def test_a_slow_scrape_delays_no_health_check_and_no_end() -> None:
    begun, goes_on, made = Event(), Event(), list[int]()

    def wait() -> list[Family]:
        if made:
            begun.set()
            assert goes_on.wait(SOON_S)
        return []

    with MetricsServer("127.0.0.1", 0, wait) as server, socket.create_connection((server.host, server.port)) as link:
        made.append(1)
        link.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert begun.wait(SOON_S)
        assert page(server, "/healthz") == (200, "ok\n")
        goes_on.set()


def test_there_is_a_bound_to_connections_and_those_that_say_nothing_are_ended(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        links = [stack.enter_context(socket.create_connection((server.host, server.port))) for _ in range(32)]
        late = stack.enter_context(socket.create_connection((server.host, server.port)))
        late.settimeout(SOON_S)
        assert late.recv(1) == b""
        monkeypatch.setattr(server_module, "_PATIENCE_S", 0.0)
        for link in links:
            link.settimeout(SOON_S)
            assert link.recv(1) == b""
    monkeypatch.undo()
    assert settles(lambda: page(server, "/healthz") == (200, "ok\n"), SOON_S)


def test_a_client_with_many_connections_keeps_out_no_health_check_of_another(server: MetricsServer) -> None:
    with ExitStack() as stack:
        place = (server.host, server.port)
        for _ in range(5):
            for _ in range(40):
                stack.enter_context(socket.create_connection(place, source_address=("127.0.0.9", 0)))
            assert page(server, "/healthz") == (200, "ok\n")


def test_a_client_for_whom_no_descriptor_is_left_is_served_later_without_asking_all_the_time(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []
    real = socket.socket.accept

    def accept(self: socket.socket) -> tuple[socket.socket, Any]:
        tries.append(time.monotonic())
        if len(tries) == 1:
            raise OSError(errno.EMFILE, "no descriptor is left")
        return real(self)

    monkeypatch.setattr(socket.socket, "accept", accept)
    assert page(server, "/healthz") == (200, "ok\n")
    assert len(tries) == 2
    assert tries[1] - tries[0] >= 0.2


def test_clients_for_whom_no_thread_is_left_take_no_place(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused(Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    with monkeypatch.context() as scarce:
        scarce.setattr(server_module, "Thread", Refused)
        for _ in range(32):
            with socket.create_connection((server.host, server.port)) as link:
                link.settimeout(SOON_S)
                assert link.recv(1) == b""
    assert page(server, "/healthz") == (200, "ok\n")


def test_an_address_is_of_this_machine_unless_something_else_is_said() -> None:
    assert parse_address("9477") == ("127.0.0.1", 9477)
    assert parse_address("0.0.0.0:80") == ("0.0.0.0", 80)
    assert parse_address("[::1]:80") == ("::1", 80)
    for wrong in ("", "host", "host:", "::1:80", "host:123456", "host:99999"):
        with pytest.raises(ConfigError, match=r"must be \[HOST:\]PORT"):
            parse_address(wrong)
    with MetricsServer("127.0.0.1", 0, list) as taken, pytest.raises(ConfigError, match="metrics cannot be served at"):
        MetricsServer("127.0.0.1", taken.port, list)
    assert [is_loopback(host) for host in ("127.0.0.9", "::1", "localhost", "0.0.0.0", "s1")] == [True] * 3 + [
        False
    ] * 2
