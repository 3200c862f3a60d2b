"""Both ways of moving packets, in Python and in C, between sockets that stand for devices."""

import os
import shutil
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from emlio.errors import TransportError
from emlio_bench.link.contract import STRETCH_NS, Held
from emlio_bench.link.devices import End
from emlio_bench.link.kinds.forwarder import InterpretedWay, Way
from emlio_bench.link.native.build import COMPILER_VARIABLE, NotCompiledError, load_library
from emlio_bench.link.native.lines import CompiledWay
from emlio_bench.link.shaping.packets import count_wire_bytes
from emlio_bench.link.spec import LinkSpec

MS = 1_000_000
NO_OFFLOAD = bytes(10)
PATIENCE_S = 10.0

compiled = pytest.mark.skipif(
    shutil.which("cc") is None, reason="the loop in C needs a compiler, and there is no cc on PATH"
)


def packet(size: int, *, full: int = 0, mark: int = 0) -> bytes:
    """An IPv4 TCP packet of this size without its offload header; of segments with `full` bytes of payload."""
    offload = struct.pack("=BBHHHH", 1, 1 if full else 0, 40, full, 20, 16)
    headers = bytearray(40)
    headers[0], headers[32] = 0x45, 0x50
    return offload + bytes(headers) + bytes([mark]) * (size - 40)


@dataclass
class Ends:
    """Two devices, seen from the link, and their other sides."""

    storage: End
    training: End
    far: socket.socket
    near: socket.socket


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    counters = tmp_path / "counters"
    counters.write_text("".join(f" {name}: {' '.join(map(str, range(16)))}\n" for name in ("far", "near")))
    with ExitStack() as stack:
        sockets = []
        for _ in range(2):
            outside, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for one in (outside, inside):
                stack.enter_context(one)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            inside.setblocking(False)
            outside.settimeout(PATIENCE_S)
            sockets.append((outside, inside))
        opened = os.open(counters, os.O_RDONLY)
        stack.callback(os.close, opened)
        (far, storage), (near, training) = sockets
        yield Ends(
            storage=End(name="far", packets=storage.fileno(), namespace=-1, counters=opened),
            training=End(name="near", packets=training.fileno(), namespace=-1, counters=opened),
            far=far,
            near=near,
        )


def in_python(ends: Ends, spec: LinkSpec) -> Way:
    return InterpretedWay(ends.storage, ends.training, spec)


def in_c(ends: Ends, spec: LinkSpec) -> Way:
    return CompiledWay(load_library(), ends.storage, ends.training, spec)


MakeWay = Callable[[Ends, LinkSpec], Way]
both = pytest.mark.parametrize("make", [in_python, pytest.param(in_c, marks=compiled)])


class Moving:
    """A way that moves packets in a thread, until the end of the block."""

    def __init__(self, way: Way) -> None:
        self._ended, self._end = os.pipe()
        self._thread = Thread(target=way.forward, args=((self._ended,),))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        os.close(self._end)  # the other end of the pipe becomes readable
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        os.close(self._ended)


@both
def test_packets_arrive_whole_in_order_and_not_before_their_time(make: MakeWay, ends: Ends) -> None:
    sent = [packet(40 + 137 * number, mark=number) for number in range(200)]
    with Moving(make(ends, LinkSpec(rtt_ns=60 * MS))):
        begun = time.monotonic()
        for one in sent:
            ends.far.send(one)
        assert [ends.near.recv(1 << 17) for _ in sent] == sent
        assert time.monotonic() - begun >= 0.03
        ends.near.send(sent[3])
        assert ends.far.recv(1 << 17) == sent[3]


@both
def test_counts_are_those_of_a_wire(make: MakeWay, ends: Ends) -> None:
    sent = [packet(60_000, full=1448), packet(40), packet(1488, full=1448), packet(1489, full=1448), packet(1500)]
    way = make(ends, LinkSpec(rtt_ns=0))
    with Moving(way):
        for one in sent:
            ends.far.send(one)
            assert ends.near.recv(1 << 17) == one
    counts = way.counts()
    assert counts.to_training.packets == len(sent)
    assert counts.to_training.wire_bytes == sum(map(count_wire_bytes, sent)) > sum(len(one) - 10 for one in sent)
    assert counts.to_training.unread_packets == 11  # that column of the kernel's counters
    assert counts.to_training.dropped_packets == 11
    assert counts.to_storage.packets == 0


@both
def test_a_full_line_drops_and_counts(make: MakeWay, ends: Ends) -> None:
    sent = [packet(30_000, mark=number) for number in range(4)]
    way = make(ends, LinkSpec(rtt_ns=200 * MS, queue_bytes=70_000))
    with Moving(way):
        for one in sent:
            ends.far.send(one)
        assert [ends.near.recv(1 << 17) for _ in range(2)] == sent[:2]
        ends.far.send(sent[3])
        assert ends.near.recv(1 << 17) == sent[3]
    assert way.counts().to_training.overflowed_packets == 2
    assert way.counts().to_training.packets == 3


@both
def test_a_line_is_not_faster_than_its_rate_and_saves_nothing_up(make: MakeWay, ends: Ends) -> None:
    sent = [packet(10_000, mark=number) for number in range(20)]
    with Moving(make(ends, LinkSpec(rtt_ns=0, rate_bytes_per_s=1_000_000, queue_bytes=1 << 20))):
        time.sleep(0.05)
        begun = time.monotonic()
        for one in sent:
            ends.far.send(one)
        assert [ends.near.recv(1 << 17) for _ in sent] == sent
        assert 0.2 <= time.monotonic() - begun < PATIENCE_S


@both
def test_a_packet_that_the_other_end_does_not_take_is_counted(make: MakeWay, ends: Ends) -> None:
    way = make(ends, LinkSpec(rtt_ns=0))
    ends.near.shutdown(socket.SHUT_RD)
    with Moving(way):
        ends.far.send(packet(100))
        deadline = time.monotonic() + PATIENCE_S
        while way.counts().to_training.packets < 1 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert way.counts().to_training.refused_packets == 1


@both
def test_what_is_held_is_told_by_stretches_once_it_was_asked_for(make: MakeWay, ends: Ends) -> None:
    way = make(ends, LinkSpec(rtt_ns=400 * MS))
    assert way.held() == Held()
    with Moving(way):
        begun_ns = time.monotonic_ns()
        ends.far.send(packet(50_000))
        ends.near.recv(1 << 17)
        ended_ns = time.monotonic_ns()
    time.sleep(0.03)
    held = way.held()
    numbers = [one.number for one in held.to_training]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert max(one.most_bytes for one in held.to_training) == 50_010
    assert {one.most_bytes for one in held.to_storage} == {0}
    byte_ns = sum(one.mean_bytes for one in held.to_training) * STRETCH_NS
    assert 0.9 * 50_010 * 200 * MS < byte_ns < 1.1 * 50_010 * (ended_ns - begun_ns)
    assert way.held().to_training == () or way.held().to_training[0].number > numbers[-1]


@both
def test_many_packets_both_ways_at_once_arrive_as_they_were_sent(make: MakeWay, ends: Ends) -> None:
    """More than the first queue of a line has room for, and both sizes of memory."""
    sent = [packet(40 if number % 10 else 3000, mark=number % 251) for number in range(1500)]

    def send(by: socket.socket) -> None:
        for one in sent:
            by.send(one)

    with Moving(make(ends, LinkSpec(rtt_ns=200 * MS))):
        threads = [Thread(target=send, args=(by,)) for by in (ends.far, ends.near)]
        for thread in threads:
            thread.start()
        got: dict[socket.socket, list[bytes]] = {ends.far: [], ends.near: []}
        readers = [
            Thread(target=lambda by=by: got[by].extend(by.recv(1 << 17) for _ in sent)) for by in (ends.far, ends.near)
        ]
        for thread in readers:
            thread.start()
        for thread in (*threads, *readers):
            thread.join(PATIENCE_S)
    assert got[ends.near] == sent
    assert got[ends.far] == sent


# ---- the library --------------------------------------------------------------------------------------------------------


@compiled
def test_the_library_is_compiled_once(tmp_path: Path) -> None:
    variables = {"XDG_CACHE_HOME": str(tmp_path)}
    load_library(variables)
    (made,) = (tmp_path / "emlio-bench").iterdir()
    first = made.stat().st_mtime_ns
    load_library(variables)
    assert [one.stat().st_mtime_ns for one in (tmp_path / "emlio-bench").iterdir()] == [first]


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({COMPILER_VARIABLE: ""}, "is empty"),
        ({COMPILER_VARIABLE: "no-such-compiler"}, "no-such-compiler"),
        ({COMPILER_VARIABLE: "false"}, "failed"),
    ],
)
def test_without_a_library_the_reason_is_told(variables: dict[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(NotCompiledError, match=reason):
        load_library({"XDG_CACHE_HOME": str(tmp_path), **variables})


def test_a_folder_that_cannot_be_written_to_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotCompiledError, match=r"cannot be made or loaded|no compiler"):
        load_library({"XDG_CACHE_HOME": str(tmp_path / "file")})


@compiled
def test_devices_that_are_gone_are_an_error(ends: Ends) -> None:
    gone = End(name="far", packets=os.open(os.devnull, os.O_WRONLY), namespace=-1, counters=ends.storage.counters)
    broken: Any = CompiledWay(load_library(), gone, ends.training, LinkSpec(rtt_ns=0))
    try:
        with pytest.raises(TransportError, match="needs its devices"):
            broken.forward(())
    finally:
        os.close(gone.packets)
