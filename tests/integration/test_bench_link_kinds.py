"""Links other than the plain one: jitter, raised buffers, the kernel's own delay as far as it can be had, relays."""

import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emlio.errors import TransportError
from emlio_bench.cli import main
from emlio_bench.harness.results import read_results
from emlio_bench.link.accuracy import judge, measure_link
from emlio_bench.link.contract import STRETCH_NS, Held, Link, LinkKind
from emlio_bench.link.emulated import EmulatedLink, why_not
from emlio_bench.link.kinds.relay import RelayedLink
from emlio_bench.link.ping import measure_rtt_ns, ping_ns
from emlio_bench.link.spec import LinkSpec
from emlio_bench.processes.child import Child

MS = 1_000_000
SLOW_S = 60.0
BUFFERS = "import sys; sys.stdout.write(''.join(open(f'/proc/sys/net/ipv4/tcp_{n}mem').read() for n in 'wr'))"
TC = """#!/bin/sh
echo "$*" >> "{log}"
case "$*" in
  -s*) echo '[{{"kind":"netem","bytes":15140,"packets":10,"drops":0}}]' ;;
esac
"""


@pytest.fixture
def namespaces() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"an emulated link {reason}")


def sent_over(link: Link, data: bytes, *, answer: Callable[[socket.socket], None] | None = None) -> bytes:
    """From training to a server at storage, which sends it back when it has all of it; what came back."""

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(SLOW_S)
            if answer is not None:
                answer(connection)
                return
            heard = bytearray()
            while chunk := connection.recv(1 << 20):
                heard += chunk
            connection.sendall(heard)

    with ThreadPoolExecutor(1) as thread, link.storage.make_socket() as listener, link.training.make_socket() as near:
        for one in (listener, near):
            one.settimeout(SLOW_S)
        listener.bind((link.storage.listen, 0))
        listener.listen(1)
        port = listener.getsockname()[1]
        link.offer([port])
        serving = thread.submit(serve, listener)
        near.connect((link.storage.address, port))
        near.sendall(data)
        near.shutdown(socket.SHUT_WR)
        came = bytearray()
        while chunk := near.recv(1 << 20):
            came += chunk
        serving.result()
    return bytes(came)


def buffers_of(link: Link) -> list[int]:
    """The most that TCP may send and receive at either end."""
    most: list[int] = []
    for end in (link.storage, link.training):
        with Child("buffers", end.command([sys.executable, "-c", BUFFERS])) as child:
            most += [int(line.split()[2]) for line in child.rest(SLOW_S).splitlines()]
    return most


@pytest.mark.usefixtures("namespaces")
def test_jitter_spreads_pings_around_the_round_trip_and_breaks_no_stream() -> None:
    data = os.urandom(3_000_000)
    with EmulatedLink(LinkSpec(rtt_ns=20 * MS, jitter_ns=8 * MS, seed=3)) as link:
        pings = ping_ns(link, 60)
        assert sent_over(link, data) == data
        assert link.counts().to_storage.dropped_packets == 0
    assert min(pings) >= 4 * MS
    # 60 sums of two draws from +-8 ms: a standard deviation of 6.5 ms, and the mean's is 0.9.
    assert statistics.stdev(pings) > 4 * MS
    assert 16 * MS < statistics.mean(pings) < 30 * MS


@pytest.mark.usefixtures("namespaces")
def test_buffers_are_raised_at_both_ends_of_a_tuned_link_alone() -> None:
    here = Path("/proc/sys/net/ipv4/tcp_wmem").read_text(encoding="ascii")
    with EmulatedLink(LinkSpec(rtt_ns=0, tuned=True)) as tuned, EmulatedLink(LinkSpec(rtt_ns=0)) as stock:
        assert buffers_of(tuned) == [64 << 20] * 4
        assert buffers_of(stock)[0] == int(here.split()[2])
    assert Path("/proc/sys/net/ipv4/tcp_wmem").read_text(encoding="ascii") == here


@pytest.mark.usefixtures("namespaces")
def test_a_pair_of_devices_carries_a_link_and_tc_is_told_what_each_has_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, tc = tmp_path / "log", tmp_path / "tc"
    tc.write_text(TC.format(log=log), encoding="ascii")
    tc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    data = os.urandom(1_000_000)
    spec = LinkSpec(rtt_ns=30 * MS, loss=0.01)
    pair = ["ip", "link", "add", "emlio-one", "type", "veth", "peer", "name", "emlio-two"]
    if any(shutil.which(name) is None for name in ("ip", "unshare")):
        pytest.skip("a pair of devices needs ip and unshare, of iproute2 and util-linux")
    # Only whether there can be a pair is asked: what goes wrong with the link itself is a failure.
    tried = subprocess.run(["unshare", "--net", *pair], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"this kernel joins no namespaces by a pair of devices: {tried.stderr.strip()}")
    with EmulatedLink(spec, LinkKind.NETEM) as link:
        assert sent_over(link, data) == data
        pings = ping_ns(link, 5)
        assert link.counts().to_training.packets == 10
        assert link.held() == Held()  # the kernel does not tell
    told = log.read_text(encoding="ascii").splitlines()
    words = "netem limit 100000 delay 15000.000us loss random 1.000000%"
    assert told[:2] == [f"qdisc add dev emlio-{end} root {words}" for end in ("storage", "training")]
    # This tc only says that it delays, and the report does not take its word.
    assert judge(spec, link.kind, pings).missed != ()


@pytest.mark.parametrize("rtt_ns", [0, 30 * MS])
def test_a_relay_takes_the_round_trip_that_was_asked_for(rtt_ns: int) -> None:
    with RelayedLink(LinkSpec(rtt_ns=rtt_ns)) as link:
        assert rtt_ns <= measure_rtt_ns(link, pings=11) <= rtt_ns + 5 * MS


def test_a_relay_hands_over_every_byte_and_the_ends_of_streams() -> None:
    data = os.urandom(20_000_000)
    with RelayedLink(LinkSpec(rtt_ns=10 * MS, jitter_ns=2 * MS)) as link:
        assert sent_over(link, data) == data
        counts = link.counts()
    assert counts.to_storage.wire_bytes == counts.to_training.wire_bytes == len(data)


def test_a_relay_tells_what_was_on_its_way() -> None:
    data = os.urandom(2_000_000)
    with RelayedLink(LinkSpec(rtt_ns=200 * MS)) as link:
        assert sent_over(link, b"?") == b"?"
        assert link.held() == Held()
        assert sent_over(link, data) == data
        held = link.held()
        assert link.held().to_training != held.to_training
    for stretches in (held.to_training, held.to_storage):
        byte_s = sum(stretch.mean_bytes for stretch in stretches) * STRETCH_NS / 1e9
        # Half a round trip each; the stretch in which the answer came was not over yet.
        assert len(data) * 0.079 < byte_s < len(data) * 0.5
        assert max(stretch.most_bytes for stretch in stretches) <= len(data)


def test_a_first_answer_over_a_relay_takes_two_round_trips_as_over_a_network() -> None:
    with RelayedLink(LinkSpec(rtt_ns=50 * MS)) as link:
        begun_ns = time.monotonic_ns()
        assert sent_over(link, b"?") == b"?"
        assert time.monotonic_ns() - begun_ns >= 100 * MS


def test_a_server_that_speaks_first_is_heard_after_two_round_trips_too() -> None:
    with RelayedLink(LinkSpec(rtt_ns=50 * MS)) as link:
        begun_ns = time.monotonic_ns()
        assert sent_over(link, b"", answer=lambda connection: connection.sendall(b"!")) == b"!"
        assert time.monotonic_ns() - begun_ns >= 100 * MS


def test_a_relay_is_not_faster_than_its_rate() -> None:
    data = os.urandom(5_000_000)
    with RelayedLink(LinkSpec(rtt_ns=0, rate_bytes_per_s=20_000_000)) as link:
        begun = time.monotonic()
        assert sent_over(link, data) == data
        assert time.monotonic() - begun > 0.5


def test_what_a_relay_holds_for_a_slow_reader_is_bounded() -> None:
    with RelayedLink(LinkSpec(rtt_ns=0)) as link, link.storage.make_socket() as listener:
        listener.bind((link.storage.listen, 0))
        listener.listen(1)
        port = listener.getsockname()[1]
        link.offer([port])
        with link.training.make_socket() as near:
            near.connect((link.storage.address, port))
            near.settimeout(1.0)
            with listener.accept()[0], pytest.raises(TimeoutError):
                near.sendall(bytes(400_000_000))
        # Half of what TCP may send; the rest is in the buffers of sockets.
        assert link.counts().to_storage.wire_bytes < 200_000_000


def test_where_nobody_listens_behind_a_relay_the_client_is_reset() -> None:
    with RelayedLink(LinkSpec(rtt_ns=100 * MS)) as link:
        with link.storage.make_socket() as probe:
            probe.bind((link.storage.listen, 0))
            port = probe.getsockname()[1]
        link.offer([port])
        with link.training.make_socket() as near:
            near.settimeout(SLOW_S)
            near.connect((link.storage.address, port))
            with pytest.raises(ConnectionResetError):
                near.recv(1)


def test_a_port_is_offered_once_and_a_taken_one_is_an_error() -> None:
    with RelayedLink(LinkSpec(rtt_ns=0)) as link, link.storage.make_socket() as taken:
        taken.bind((link.storage.address, 0))
        taken.listen(1)
        with pytest.raises(TransportError, match=r"a relay must be able to listen: 127\..*in use"):
            link.offer([taken.getsockname()[1]])
        assert link.pids == ()
    with pytest.raises(TransportError, match="this one has ended"):
        link.offer([1])


@pytest.mark.parametrize("kind", [LinkKind.EMULATED, LinkKind.RELAY])
def test_a_link_is_measured_by_our_own_streams_where_there_is_no_iperf(
    kind: LinkKind, request: pytest.FixtureRequest
) -> None:
    if kind is LinkKind.EMULATED:
        request.getfixturevalue("namespaces")
    spec = LinkSpec(rtt_ns=10 * MS)
    with RelayedLink(spec) if kind is LinkKind.RELAY else EmulatedLink(spec, kind) as link:
        report = measure_link(link, pings=5, streams=(2,), warm_up_s=0, span_s=1, iperf=None)
    assert (report.kind, report.measured.pings) == (kind, 5)
    (load,) = report.loads
    assert (load.streams, load.tool) == (2, "sockets")
    assert load.bits_per_s > 10e6
    assert load.retransmits is not None


def test_the_command_measures_a_relay_where_it_is_asked_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "link.json"
    argv = ["link", "--quick", "--kind", "relay", "--rtts", "1ms", "--streams", "2", "--json", str(path)]
    assert main(argv) == 0
    said = capsys.readouterr().out
    assert "1 ms, 2 streams" in said
    assert "kind: relay, on loopback: TCP does not see the distance" in said
    results = read_results(path)
    assert results.benchmark == "link"
    assert dict(results.settings)["kind"] == "relay"
    assert min(results.figures[0].values) >= 1.0
