"""Programs that serve at one end of a link."""

import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emlio.errors import TransportError
from emlio_bench.link.contract import Link, LinkSpec
from emlio_bench.processes.child import Child
from emlio_bench.race.servers.served import free_port, served

DRIVER = """
import signal, sys
from emlio_bench.link.contract import Link
from emlio_bench.link.contract import LinkSpec
from emlio_bench.processes.child import say
from emlio_bench.race.servers.served import free_port, served

with Link(LinkSpec(rtt_ns=0)) as link:
    address, port = link.storage.listen, free_port(link.storage)
    command = [sys.executable, "-m", "http.server", "--directory", sys.argv[1], "--bind", address, str(port)]
    with served("the server", command, link, port) as server:
        say(server.pid)
        signal.pause()
"""
SLOW_S = 60.0


@pytest.fixture
def link() -> Iterator[Link]:
    with Link(LinkSpec(rtt_ns=0)) as here:
        yield here


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
