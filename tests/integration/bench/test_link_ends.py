"""What is left of a link when something is killed that nobody could clean up after."""

import os
import select
import signal
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from emlio.errors import TransportError
from emlio_bench.link.contract import LinkSpec
from emlio_bench.link.emulated import EmulatedLink, why_not
from emlio_bench.processes.child import Child
from emlio_testing.namespaces import holders

SLOW_S = 60.0
DRIVER = """
import signal, sys
from emlio_bench.link.emulated import EmulatedLink
from emlio_bench.link.contract import LinkSpec
from emlio_bench.processes.child import Child, say
link = EmulatedLink(LinkSpec(rtt_ns=0))
stays = "import signal; from emlio_bench.processes.child import say; say(1); signal.pause()"
programs = [Child("stays", end.command([sys.executable, "-c", stays])) for end in (link.storage, link.training)]
for program in programs:
    program.hear(int, 60)
say([link.pid, *(program.pid for program in programs)])
say([str(link.storage.namespace), str(link.training.namespace)])
signal.pause()
"""


@pytest.fixture
def namespaces() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"an emulated link {reason}")


@contextmanager
def watched(processes: list[int]) -> Generator[list[int], None, None]:
    """Descriptors of processes, which become readable when those end."""
    with ExitStack() as stack:
        found: list[int] = []
        for process in processes:
            found.append(os.pidfd_open(process))
            stack.callback(os.close, found[-1])
        yield found


def all_end(processes: list[int]) -> bool:
    return all(select.select([process], [], [], SLOW_S)[0] for process in processes)


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_with_its_owner_a_link_ends_and_so_do_programs_at_its_ends_and_the_namespaces(number: signal.Signals) -> None:
    devices = os.listdir("/sys/class/net")
    with (
        Child("driver", [sys.executable, "-c", DRIVER]) as driver,
        watched(driver.hear(list[int], SLOW_S)) as processes,
    ):
        namespaces = [Path(place).stat() for place in driver.hear(list[str], SLOW_S)]
        assert all(len(holders(namespace)) >= 2 for namespace in namespaces)
        os.kill(driver.pid, number)
        assert all_end(processes)
    assert [holders(namespace) for namespace in namespaces] == [[], []]
    assert os.listdir("/sys/class/net") == devices


@pytest.mark.usefixtures("namespaces")
def test_with_the_process_that_is_the_link_its_devices_end_and_its_owner_is_told() -> None:
    listing = [sys.executable, "-c", "print(open('/proc/net/dev').read())"]
    with EmulatedLink(LinkSpec(rtt_ns=0)) as link, ExitStack() as stack:
        kept = os.open(link.storage.namespace, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, kept)
        inside = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{kept}", "--", *listing]
        with Child("devices", inside) as before:
            assert b"emlio-storage" in before.rest(SLOW_S)
        with watched([link.pid]) as processes:
            os.kill(link.pid, signal.SIGKILL)
            assert all_end(processes)
        with Child("devices", inside) as after:
            said = after.rest(SLOW_S)
        assert b"lo:" in said
        assert b"emlio-storage" not in said
        with pytest.raises(TransportError, match="this one has ended"):
            link.counts()
        with pytest.raises(TransportError, match="while the link is up"):
            link.training.make_socket()
        namespace = os.fstat(kept)
    assert holders(namespace) == []
