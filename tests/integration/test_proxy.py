"""The fault-injecting proxy: faithful until it is told otherwise, and then wrong in exactly the way it was told."""

import random
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from threading import Thread

import pytest

from emlio_testing.processes import settles
from tests.integration.proxy_wires import LIMIT_S, PORTS, Wires, is_reset, is_silent, take


@pytest.fixture
def wires() -> Iterator[Wires]:
    with ExitStack() as stack:
        yield Wires(stack)


def _until_reset(side: socket.socket) -> int:
    """How many bytes came before it was reset."""
    came = 0
    try:
        while part := side.recv(1 << 20):
            came += len(part)
    except ConnectionResetError:
        return came
    raise AssertionError("it ended, but was not reset")


def _fill_until_reset(side: socket.socket) -> None:
    try:
        while True:
            side.sendall(bytes(1 << 16))
    except ConnectionError:
        return


def _send_reset(side: socket.socket) -> None:
    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    side.close()


def _fill(side: socket.socket) -> int:
    """Send until nothing is taken any more; returns how much was."""
    side.setblocking(False)
    sent, piece = 0, bytes(1 << 16)

    def push() -> bool:
        nonlocal sent
        before = sent
        try:
            while True:
                sent += side.send(piece)
        except BlockingIOError:
            return sent == before

    assert settles(push, LIMIT_S)
    side.settimeout(LIMIT_S)
    return sent


# ---- without a fault ----------------------------------------------------------------------------------------------------


def test_a_hundred_megabytes_come_through_unchanged_on_several_connections_at_once(wires: Wires) -> None:
    draw = random.Random(7)
    sent = [draw.randbytes(25_000_000) for _ in range(4)]
    pairs = [wires.connect(number % PORTS) for number in range(4)]
    # Two downwards, two upwards.
    ways = [(daemon, rank) if number < 2 else (rank, daemon) for number, (rank, daemon) in enumerate(pairs)]
    came: dict[int, bytes] = {}

    def send(number: int) -> None:
        ways[number][0].sendall(sent[number])

    def receive(number: int) -> None:
        came[number] = take(ways[number][1], len(sent[number]))

    threads = [Thread(target=what, args=(number,)) for what in (send, receive) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [came[number] for number in range(4)] == sent
    assert wires.proxy.forwarded_bytes == 50_000_000
    assert not wires.proxy.faults


def test_an_end_of_one_direction_leaves_the_other_open(wires: Wires) -> None:
    rank, daemon = wires.connect()
    rank.sendall(b"the last question")
    rank.shutdown(socket.SHUT_WR)
    assert take(daemon, 100) == b"the last question"
    daemon.sendall(b"an answer")
    daemon.close()
    assert take(rank, 100) == b"an answer"
    assert settles(lambda: not wires.proxy.connections, LIMIT_S)


def test_a_reset_of_one_side_is_a_reset_of_the_other(wires: Wires) -> None:
    rank, daemon = wires.connect()
    _send_reset(rank)
    assert is_reset(daemon)
    rank, daemon = wires.connect()
    _send_reset(daemon)
    assert is_reset(rank)


def test_where_no_daemon_listens_the_rank_is_refused(wires: Wires) -> None:
    wires.leave()
    with pytest.raises(ConnectionResetError):  # at once, or when it is used
        wires.dial().recv(1)
    assert settles(lambda: not wires.proxy.connections, LIMIT_S)


def test_a_side_that_does_not_read_stops_its_own_sender_and_no_other(wires: Wires) -> None:
    rank, daemon = wires.connect()
    other_rank, other_daemon = wires.connect(2)
    sent = _fill(daemon)
    assert sent < 64 << 20  # what kernels buffer, and 256 KiB
    other_daemon.sendall(b"x" * 1_000_000)
    assert take(other_rank, 1_000_000) == b"x" * 1_000_000
    assert take(rank, sent) == bytes(sent)


# ---- faults -------------------------------------------------------------------------------------------------------------


def test_dropped_bytes_vanish_both_ways_and_the_connection_with_the_hole_ends_when_it_heals(wires: Wires) -> None:
    rank, daemon = wires.connect()
    untouched_rank, untouched_daemon = wires.connect(2)
    wires.proxy.drop()
    rank.sendall(b"up")
    daemon.sendall(b"down")
    assert is_silent(rank)
    assert is_silent(daemon)
    swallowed = wires.dial()
    swallowed.sendall(b"is anybody there")
    assert is_silent(swallowed)
    wires.proxy.heal()
    assert is_reset(rank)
    assert is_reset(daemon)
    assert is_reset(swallowed)
    untouched_daemon.sendall(b"as ever")
    assert take(untouched_rank, 7) == b"as ever"
    assert wires.proxy.faults == {"drop": 2}


def test_an_end_of_a_connection_vanishes_like_its_bytes(wires: Wires) -> None:
    rank, daemon = wires.connect()
    wires.proxy.drop()
    _send_reset(daemon)
    assert is_silent(rank)
    wires.proxy.heal()
    assert is_reset(rank)


def test_a_stall_fills_the_senders_and_loses_nothing(wires: Wires) -> None:
    rank, daemon = wires.connect()
    wires.proxy.stall()
    waiting = wires.dial(2)
    waiting.sendall(b"later")
    sent = _fill(daemon)
    assert is_silent(rank)
    before = wires.proxy.forwarded_bytes
    wires.proxy.heal()
    daemon.sendall(b"the end")
    assert take(rank, sent + 7) == bytes(sent) + b"the end"
    assert before == 0
    assert wires.proxy.faults == {"stall": 1}


def test_a_rate_holds_for_all_connections_together_and_none_of_them_starves(wires: Wires) -> None:
    pairs = [wires.connect(number % PORTS) for number in range(4)]
    wires.proxy.slow(2_000_000)
    begun = time.monotonic()
    takers = [Thread(target=take, args=(rank, 100_000)) for rank, _ in pairs]
    for (_, daemon), taker in zip(pairs, takers, strict=True):
        taker.start()
        daemon.sendall(bytes(1_000_000))
    for taker in takers:
        taker.join(LIMIT_S)
        assert not taker.is_alive()
    taken_s = time.monotonic() - begun
    assert wires.proxy.forwarded_bytes <= 2_000_000 * taken_s + 50_000
    assert taken_s < 10
    wires.proxy.heal()
    for rank, _ in pairs:
        assert len(take(rank, 900_000)) == 900_000


def test_at_a_low_rate_a_little_on_one_connection_is_not_kept_waiting_by_much_on_another(wires: Wires) -> None:
    rank, daemon = wires.connect(0)
    busy_rank, busy_daemon = wires.connect(1)
    wires.proxy.slow(2_000_000)
    taker = Thread(target=_until_reset, args=(busy_rank,))
    feeder = Thread(target=_fill_until_reset, args=(busy_daemon,))
    taker.start()
    feeder.start()
    assert settles(lambda: wires.proxy.forwarded_bytes > 100_000, LIMIT_S)
    before = wires.proxy.forwarded_bytes
    for _ in range(10):
        daemon.sendall(b"ping")
        assert take(rank, 4) == b"ping"
    assert wires.proxy.forwarded_bytes - before < 10 * 100_000  # and not a whole buffer each time
    wires.proxy.reset()
    taker.join()
    feeder.join()


def test_a_slow_way_to_the_ranks_does_not_slow_what_they_say(wires: Wires) -> None:
    rank, daemon = wires.connect(0)
    wires.proxy.slow(1)
    rank.sendall(bytes(1_000_000))
    assert len(take(daemon, 1_000_000)) == 1_000_000


def test_a_reset_ends_all_connections_on_both_sides_and_new_ones_work(wires: Wires) -> None:
    pairs = [wires.connect(number) for number in range(PORTS)]
    wires.proxy.reset()
    assert all(is_reset(side) for pair in pairs for side in pair)
    rank, daemon = wires.connect()
    daemon.sendall(b"again")
    assert take(rank, 5) == b"again"
    assert wires.proxy.faults == {"reset": PORTS}


def test_a_half_open_connection_is_silent_to_the_rank_and_gone_to_the_daemon(wires: Wires) -> None:
    rank, daemon = wires.connect()
    wires.proxy.half_open()
    assert is_reset(daemon)
    rank.sendall(b"is anybody there")
    assert is_silent(rank)
    wires.proxy.heal()
    assert is_silent(rank)
    other_rank, other_daemon = wires.connect()
    other_daemon.sendall(b"new")
    assert take(other_rank, 3) == b"new"
    assert wires.proxy.connections == 2
    rank.close()
    assert settles(lambda: wires.proxy.connections == 1, LIMIT_S)
    assert wires.proxy.faults == {"half_open": 1}


@pytest.mark.parametrize("count", [1, 1000, 300_001])
def test_a_cut_comes_after_that_many_bytes_over_data_ports(wires: Wires, count: int) -> None:
    control, control_daemon = wires.connect(0)
    rank, daemon = wires.connect(1)
    other, other_daemon = wires.connect(2)
    other_daemon.sendall(b"before")
    assert take(other, 6) == b"before"
    wires.proxy.cut_after(count)
    control_daemon.sendall(bytes(count))
    assert len(take(control, count)) == count
    assert not wires.proxy.faults
    daemon.sendall(bytes(500_000))
    came = _until_reset(rank)
    assert came <= count  # what had not reached the rank is lost with the connection, as on any network
    assert came == count or count > 100_000
    assert wires.proxy.forwarded_bytes == 6 + count + count
    assert wires.proxy.faults == {"cut_after": 1}
    other_daemon.sendall(b"after")
    assert take(other, 5) == b"after"


def _changed(data: Sequence[int] | bytes, at: int, mask: int) -> bytes:
    made = bytearray(data)
    made[at] ^= mask
    return bytes(made)


@pytest.mark.parametrize(("at", "mask"), [(0, 1), (1, 0x80), (99_999, 0xFF), (400_000, 3)])
def test_one_byte_is_changed_and_it_is_the_one_that_was_meant(wires: Wires, at: int, mask: int) -> None:
    data = random.Random(3).randbytes(500_000)
    pairs = [wires.connect(0), wires.connect(1)]
    wires.proxy.corrupt_after(at, mask=mask)
    wires.proxy.corrupt_after(at, mask=mask, control=True)
    wires.proxy.corrupt_after(at, mask=mask, to_daemon=True)
    for rank, daemon in pairs:
        daemon.sendall(data)
        assert take(rank, len(data)) == _changed(data, at, mask)
        daemon.sendall(data)
        assert take(rank, len(data)) == data
    assert wires.proxy.faults == {"corrupt_after": 2}
    rank, daemon = pairs[1]
    rank.sendall(data)
    assert take(daemon, len(data)) == _changed(data, at, mask)
    assert wires.proxy.faults == {"corrupt_after": 3}


def test_what_was_still_to_happen_is_forgotten_when_it_heals(wires: Wires) -> None:
    rank, daemon = wires.connect()
    wires.proxy.cut_after(10)
    wires.proxy.corrupt_after(5)
    wires.proxy.heal()
    daemon.sendall(bytes(100))
    assert take(rank, 100) == bytes(100)
    assert wires.proxy.faults["cut_after"] == wires.proxy.faults["corrupt_after"] == 0
