"""Real namespaces, devices and TCP; needs root and /dev/net/tun."""

import hashlib
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emlio.errors import TransportError
from emlio_bench.link.accuracy import measure_link, measure_rtt_ns
from emlio_bench.link.contract import STRETCH_NS, Held, LinkEnd, LinkSpec
from emlio_bench.link.emulated import EmulatedLink, why_not
from emlio_bench.link.iperf import find_iperf
from emlio_bench.link.native.build import COMPILER_VARIABLE
from emlio_bench.processes.child import Child
from emlio_testing.namespaces import holders

MS = 1_000_000
SLOW_S = 60.0
ECHO = """
import socket, sys
from emlio_bench.processes.child import say
with socket.create_server((sys.argv[1], 0)) as listener:
    say(listener.getsockname()[1])
    connection, peer = listener.accept()
    with connection:
        connection.sendall(peer[0].encode())
"""


@pytest.fixture(scope="module", autouse=True)
def links_are_possible() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"an emulated link {reason}")


def listening(end: LinkEnd, address: str) -> socket.socket:
    listener = end.make_socket()
    listener.settimeout(SLOW_S)
    listener.bind((address, 0))
    listener.listen(1)
    return listener


def send_over(link: EmulatedLink, data: bytes) -> tuple[str, float]:
    """From storage to training; the digest of what arrived, and how long it took."""

    def send(address: tuple[str, int]) -> None:
        with link.storage.make_socket() as sender:
            sender.settimeout(SLOW_S)
            sender.connect(address)
            sender.sendall(data)

    arrived = hashlib.sha256()
    with ThreadPoolExecutor(1) as thread, listening(link.training, link.training.address) as listener:
        sending = thread.submit(send, listener.getsockname())
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(SLOW_S)
            begun = time.monotonic()
            while chunk := connection.recv(1 << 20):
                arrived.update(chunk)
        sending.result()
    return arrived.hexdigest(), time.monotonic() - begun


def test_a_ping_takes_the_round_trip_that_was_asked_for() -> None:
    for rtt_ns in (0, 30 * MS):
        with EmulatedLink(LinkSpec(rtt_ns=rtt_ns)) as link:
            # What the link itself takes is a part of it, and may be less than it was at the start.
            measured_ns = [measure_rtt_ns(link) for _ in range(5)]  # the machine may have been busy during some
            assert rtt_ns - link.own_ns <= min(measured_ns) <= rtt_ns + 3 * MS


def test_what_a_link_takes_itself_is_a_part_of_the_round_trip_where_there_is_one() -> None:
    for rtt_ns in (0, 100_000, 10 * MS):
        with EmulatedLink(LinkSpec(rtt_ns=rtt_ns)) as link:
            assert (link.own_ns > 0) is (rtt_ns > 0)
            assert link.own_ns <= rtt_ns
            # The pings that told it are no packets of its user's.
            assert link.counts().to_storage.packets == 0


def test_what_was_on_its_way_is_told_from_the_first_time_on_that_it_was_asked_for() -> None:
    data = os.urandom(20_000_000)
    with EmulatedLink(LinkSpec(rtt_ns=60 * MS, rate_bytes_per_s=50_000_000)) as link:
        send_over(link, data)
        assert link.held() == Held()
        begun_ns = time.monotonic_ns()
        _, elapsed_s = send_over(link, data)
        held = link.held()
    stretches = held.to_training
    numbers = [stretch.number for stretch in stretches]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert abs(numbers[0] * STRETCH_NS - begun_ns) < 1000 * MS
    # Each byte is held for half a round trip at least: a mean is what passed in a second times that, with headers besides.
    byte_s = sum(stretch.mean_bytes for stretch in stretches) * STRETCH_NS / 1e9
    assert byte_s > len(data) * 0.025
    assert (
        max(stretch.most_bytes for stretch in stretches)
        <= LinkSpec(rtt_ns=60 * MS, rate_bytes_per_s=50_000_000).held_bytes
    )
    assert max(stretch.most_bytes for stretch in held.to_storage) < 100_000
    assert elapsed_s > 0.4


def test_fifty_megabytes_arrive_as_they_were_sent() -> None:
    data = os.urandom(50_000_000)
    with EmulatedLink(LinkSpec(rtt_ns=30 * MS)) as link:
        digest, _ = send_over(link, data)
        counts = link.counts()
        assert link.moved_by == "C"
    assert digest == hashlib.sha256(data).hexdigest()
    assert counts.to_training.wire_bytes > 50_000_000
    assert counts.to_storage.packets > 0
    for line in (counts.to_training, counts.to_storage):
        assert (line.overflowed_packets, line.refused_packets) == (0, 0)


def test_a_line_is_not_faster_than_its_rate() -> None:
    data = os.urandom(10_000_000)
    with EmulatedLink(LinkSpec(rtt_ns=10 * MS, rate_bytes_per_s=50_000_000)) as link:
        digest, elapsed_s = send_over(link, data)
    assert digest == hashlib.sha256(data).hexdigest()
    assert elapsed_s > 0.2


def test_programs_run_at_either_end() -> None:
    with EmulatedLink(LinkSpec(rtt_ns=0)) as link:
        argv = [sys.executable, "-c", ECHO, link.storage.address]
        with Child("echo", link.storage.command(argv)) as child, link.training.make_socket() as near:
            near.settimeout(SLOW_S)
            near.connect((link.storage.address, child.hear(int, SLOW_S)))
            assert near.recv(100).decode() == link.training.address


def test_each_end_has_a_loopback_of_its_own() -> None:
    with EmulatedLink(LinkSpec(rtt_ns=0)) as link:
        for own, other in ((link.storage, link.training), (link.training, link.storage)):
            with listening(own, "127.0.0.1") as listener, own.make_socket() as near, other.make_socket() as far:
                near.connect(listener.getsockname())
                with pytest.raises(ConnectionRefusedError):
                    far.connect(listener.getsockname())


def test_links_do_not_disturb_each_other() -> None:
    with EmulatedLink(LinkSpec(rtt_ns=0)) as near, EmulatedLink(LinkSpec(rtt_ns=30 * MS)) as far:
        assert measure_rtt_ns(near, pings=5) < 28 * MS < measure_rtt_ns(far, pings=5)


def test_nothing_is_left_when_the_block_ends_even_by_an_error() -> None:
    devices = os.listdir("/sys/class/net")
    link = EmulatedLink(LinkSpec(rtt_ns=0))
    namespaces = [end.namespace.stat() for end in (link.storage, link.training)]
    assert all(holders(namespace) for namespace in namespaces)
    assert os.listdir("/sys/class/net") == devices
    with pytest.raises(ZeroDivisionError), link:
        raise ZeroDivisionError
    assert [holders(namespace) for namespace in namespaces] == [[], []]
    assert not Path(f"/proc/{link.pid}").exists()
    assert os.listdir("/sys/class/net") == devices
    link.close()
    with pytest.raises(TransportError, match="this one has ended"):
        link.counts()
    with pytest.raises(TransportError, match="while the link is up"):
        link.storage.make_socket()


def test_without_a_compiler_no_link_is_made_and_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPILER_VARIABLE, "")
    assert why_not() == f"{COMPILER_VARIABLE} is empty"
    with pytest.raises(TransportError, match="is empty"):
        EmulatedLink(LinkSpec(rtt_ns=0))


def test_a_link_is_measured_and_judged() -> None:
    with EmulatedLink(LinkSpec(rtt_ns=10 * MS)) as link:
        report = measure_link(link, pings=9, streams=(2,), iperf=find_iperf())
    assert report.measured.pings == 9
    assert 10 * MS - link.own_ns <= report.measured.low
    assert [load.streams for load in report.loads] == ([2] if find_iperf() else [])


def test_a_link_changes_while_it_is_up_and_keeps_what_is_on_its_way() -> None:
    with EmulatedLink(LinkSpec(rtt_ns=5 * MS)) as link:
        for rtt_ms in (40, 10):
            link.change(LinkSpec(rtt_ns=rtt_ms * MS))
            assert link.spec.rtt_ns == rtt_ms * MS
            assert rtt_ms * MS * 0.9 < measure_rtt_ns(link, 5) < rtt_ms * MS + 8 * MS
        link.change(LinkSpec(rtt_ns=MS, rate_bytes_per_s=10_000_000))
        data = os.urandom(4_000_000)
        digest, took_s = send_over(link, data)
        assert digest == hashlib.sha256(data).hexdigest()
        assert took_s > 0.35
        assert link.counts().to_training.packets > 0
