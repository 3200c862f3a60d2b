"""Links that share their training end: real namespaces, devices and TCP; needs root and /dev/net/tun."""

import os
import select
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from emlio.errors import ConfigError, TransportError
from emlio_bench.link.accuracy import measure_rtt_ns
from emlio_bench.link.choice import open_star
from emlio_bench.link.contract import Link, LinkKind, LinkSpec
from emlio_bench.link.devices import MOST_PLACES
from emlio_bench.link.emulated import EmulatedLink, why_not
from emlio_bench.link.own_time import MOST_OWN_NS
from emlio_bench.processes.child import Child
from emlio_testing.namespaces import holders
from emlio_testing.processes import settles

MS = 1_000_000
SLOW_S = 60.0
DRIVER = """
import signal, sys
from contextlib import ExitStack
from emlio_bench.link.choice import open_star
from emlio_bench.link.contract import LinkKind
from emlio_bench.link.contract import LinkSpec
from emlio_bench.processes.child import Child, say
stays = "import signal; from emlio_bench.processes.child import say; say(1); signal.pause()"
with open_star([LinkSpec(rtt_ns=0)] * 3, LinkKind.EMULATED) as links:
    ends = [*(link.storage for link in links), links[0].training]
    programs = [Child("stays", end.command([sys.executable, "-c", stays])) for end in ends]
    for program in programs:
        program.hear(int, 60)
    say([*(link.pid for link in links), *(program.pid for program in programs)])
    say([str(end.namespace) for end in ends])
    signal.pause()
"""


@pytest.fixture
def namespaces() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"an emulated link {reason}")


def send_over(link: Link, size_bytes: int) -> float:
    """From storage to training; how long it took."""

    def send(address: tuple[str, int]) -> None:
        with link.storage.make_socket() as sender:
            sender.settimeout(SLOW_S)
            sender.connect(address)
            sender.sendall(bytes(size_bytes))

    with ThreadPoolExecutor(1) as thread, link.training.make_socket() as listener:
        listener.settimeout(SLOW_S)
        listener.bind((link.training.address, 0))
        listener.listen(1)
        begun = time.monotonic()
        sending = thread.submit(send, listener.getsockname())
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(SLOW_S)
            while connection.recv(1 << 20):
                continue
        sending.result()
        return time.monotonic() - begun


@pytest.mark.usefixtures("namespaces")
def test_ranks_at_one_end_reach_every_storage_end_over_its_own_line() -> None:
    rtts_ns = (0, 20 * MS, 40 * MS)
    with open_star([LinkSpec(rtt_ns=rtt_ns) for rtt_ns in rtts_ns], LinkKind.EMULATED) as links:
        assert len({link.storage.address for link in links}) == 3
        shared = {os.stat(link.training.namespace or "").st_ino for link in links}
        assert len(shared) == 1
        for link, rtt_ns in zip(links, rtts_ns, strict=True):
            # The link takes off what it takes itself; a busy machine adds, but less than the next line has.
            assert rtt_ns - MOST_OWN_NS <= measure_rtt_ns(link, pings=15) < rtt_ns + 20 * MS
        before = [link.counts().to_training.wire_bytes for link in links]
        send_over(links[1], 3_000_000)
        after = [link.counts().to_training.wire_bytes for link in links]
        carried = [later - earlier for earlier, later in zip(before, after, strict=True)]
        assert carried[1] > 3_000_000
        assert max(carried[0], carried[2]) < 1000  # the last word of a ping's connection
        # Storage nodes do not see each other.
        with links[0].storage.make_socket() as near, pytest.raises(OSError, match="unreachable"):
            near.connect((links[1].storage.address, 1))


@pytest.mark.usefixtures("namespaces")
def test_lines_keep_their_rates_side_by_side() -> None:
    rates = (40_000_000, 10_000_000)
    specs = [LinkSpec(rtt_ns=0, rate_bytes_per_s=rate) for rate in rates]
    with open_star(specs, LinkKind.EMULATED) as links, ThreadPoolExecutor(2) as threads:
        quick, slow = threads.map(lambda link: send_over(link, 8_000_000), links)
    # Their own rates, and a quick one does not wait for a slow one.
    assert 0.2 < quick < 0.8 < slow


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_with_their_owner_all_links_end_and_so_do_programs_at_their_ends(number: signal.Signals) -> None:
    devices = os.listdir("/sys/class/net")
    with Child("driver", [sys.executable, "-c", DRIVER]) as driver, ExitStack() as stack:
        processes: list[int] = []
        for process in driver.hear(list[int], SLOW_S):
            processes.append(os.pidfd_open(process))
            stack.callback(os.close, processes[-1])
        places = [Path(place).stat() for place in driver.hear(list[str], SLOW_S)]
        assert len({(place.st_dev, place.st_ino) for place in places}) == 4
        os.kill(driver.pid, number)
        assert all(select.select([process], [], [], SLOW_S)[0] for process in processes)
    # The kernel may give the number of a namespace that is gone to one that another test makes.
    assert settles(lambda: not any(holders(place) for place in places), SLOW_S), [holders(place) for place in places]
    assert os.listdir("/sys/class/net") == devices


@pytest.mark.usefixtures("namespaces")
def test_the_shared_end_lives_as_long_as_any_of_its_links() -> None:
    with EmulatedLink(LinkSpec(rtt_ns=0)) as first:
        second = EmulatedLink(LinkSpec(rtt_ns=0), beside=[first])
    with second:
        assert measure_rtt_ns(second, pings=3) < 100 * MS
        with pytest.raises(TransportError, match="network namespaces"):
            EmulatedLink(LinkSpec(rtt_ns=0), beside=[first])


@pytest.mark.usefixtures("namespaces")
def test_links_of_one_end_are_all_tuned_or_none_and_not_too_many() -> None:
    with EmulatedLink(LinkSpec(rtt_ns=0)) as stock:
        with pytest.raises(ConfigError, match="must all be tuned or none"):
            EmulatedLink(LinkSpec(rtt_ns=0, tuned=True), beside=[stock])
        with pytest.raises(ConfigError, match=f"at most {MOST_PLACES} links"):
            EmulatedLink(LinkSpec(rtt_ns=0), beside=[stock] * MOST_PLACES)
