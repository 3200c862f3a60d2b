"""The servers of the race, through a relay that holds nothing back: the stand-in for nginx answers as nginx does."""

import os
import select
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from emlio.errors import TransportError
from emlio_bench.link.contract import Link
from emlio_bench.link.spec import LinkSpec
from emlio_bench.processes.child import Child
from emlio_bench.race.servers import web_server
from emlio_bench.race.servers.served import free_port, served

DRIVER = """
import signal, sys
from emlio_bench.link.contract import Link
from emlio_bench.link.spec import LinkSpec
from emlio_bench.processes.child import say
from emlio_bench.race.servers.served import free_port, served

with Link(LinkSpec(rtt_ns=0)) as link:
    address, port = link.storage.listen, free_port(link.storage)
    command = [sys.executable, "-m", "emlio_bench.race.servers.file_server", sys.argv[1], address, str(port)]
    with served("the server", command, link, port) as server:
        say(server.pid)
        signal.pause()
"""
CONTENT = bytes(range(256)) * 20_000
SLOW_S = 60.0


@pytest.fixture
def link() -> Iterator[Link]:
    with Link(LinkSpec(rtt_ns=0)) as here:
        yield here


@pytest.fixture(params=["nginx", "our own"])
def url(request: pytest.FixtureRequest, link: Link, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    cache = tmp_path / "cache"
    if request.param == "our own":
        monkeypatch.setattr(web_server, "find_program", lambda name, cache: None)
    elif not web_server.server_lists(cache):
        pytest.skip("nginx is not installed")
    folder = tmp_path / "served"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_bytes(CONTENT)
    (tmp_path / "secret").write_bytes(b"not served")
    with web_server.serving_folder(folder, link, cache) as address:
        yield address


def get(url: str, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=SLOW_S) as answer:
        return answer.status, answer.read()


def test_a_file_comes_whole(url: str) -> None:
    assert get(f"{url}/inner/file") == (200, CONTENT)


@pytest.mark.parametrize(
    ("wanted", "part"),
    [("bytes=0-0", CONTENT[:1]), ("bytes=1000-70999", CONTENT[1000:71_000]), ("bytes=-5", CONTENT[-5:])],
)
def test_a_range_comes_and_nothing_besides(url: str, wanted: str, part: bytes) -> None:
    assert get(f"{url}/inner/file", Range=wanted) == (206, part)


def test_a_range_to_the_end_and_beyond_ends_with_the_file(url: str) -> None:
    last = len(CONTENT) - 10
    assert get(f"{url}/inner/file", Range=f"bytes={last}-") == (206, CONTENT[-10:])
    assert get(f"{url}/inner/file", Range=f"bytes={last}-{10 * len(CONTENT)}") == (206, CONTENT[-10:])


@pytest.mark.parametrize("path", ["/missing", "/../secret", "/%2e%2e/secret"])
def test_what_is_not_in_the_folder_is_not_given(url: str, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(url + path)
    refused.value.close()
    assert refused.value.code in (400, 404)


def test_a_range_behind_the_end_is_refused(url: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(f"{url}/inner/file", Range=f"bytes={len(CONTENT)}-")
    refused.value.close()
    assert refused.value.code == 416


def test_a_connection_serves_several_requests(url: str) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    question = f"HEAD /inner/file HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    with socket.create_connection((host, int(port)), SLOW_S) as connection:
        for _ in range(3):
            connection.sendall(question)
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert f"content-length: {len(CONTENT)}".encode() in answer.lower()


def test_a_server_ends_with_a_driver_that_was_killed(tmp_path: Path) -> None:
    with Child("driver", [sys.executable, "-c", DRIVER, str(tmp_path)]) as driver:
        server = os.pidfd_open(driver.hear(int, SLOW_S))
        try:
            os.kill(driver.pid, signal.SIGKILL)
            assert select.select([server], [], [], SLOW_S)[0]
        finally:
            os.close(server)


def test_a_server_that_ends_at_once_is_told_of(link: Link) -> None:
    with (
        pytest.raises(TransportError, match="the server must work through"),
        served("the server", ["false"], link, free_port(link.storage)),
    ):
        pass
