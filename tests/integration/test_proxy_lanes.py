"""The fault-injecting proxy's faults of single lanes and of data ports alone."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Thread

import pytest

from emlio_testing.processes import settles
from emlio_testing.proxy import FaultProxy
from tests.integration.proxy_wires import LIMIT_S, Wires, is_reset, is_silent, take


@pytest.fixture
def wires() -> Iterator[Wires]:
    with ExitStack() as stack:
        yield Wires(stack)


def _says(daemon: socket.socket, rank: socket.socket, data: bytes = b"as ever") -> bool:
    daemon.sendall(data)
    return take(rank, len(data)) == data


def test_one_lane_is_cut_and_it_is_the_one_that_was_meant(wires: Wires) -> None:
    control, lanes = wires.connect(0), [wires.connect(1) for _ in range(3)]
    assert settles(lambda: wires.proxy.lanes == 3, LIMIT_S)
    wires.proxy.cut_lane(1)
    assert all(is_reset(side) for side in lanes.pop(1))
    assert all(_says(daemon, rank) for rank, daemon in (control, *lanes))
    wires.proxy.cut_lane(1)
    assert all(is_reset(side) for side in lanes.pop(1))
    assert wires.proxy.lanes == 1
    assert wires.proxy.faults == {"cut_lane": 2}


def test_bytes_of_one_lane_vanish_and_of_no_other_until_it_heals(wires: Wires) -> None:
    (lost_rank, lost_daemon), (rank, daemon) = wires.connect(), wires.connect()
    wires.proxy.drop_lane(0)
    for _ in range(2):
        lost_daemon.sendall(b"down")
        assert is_silent(lost_rank)
        assert _says(daemon, rank)
    wires.proxy.heal()
    assert is_reset(lost_rank)
    assert _says(daemon, rank)
    assert wires.proxy.faults == {"drop": 1}


def test_data_ports_alone_swallow_what_comes_to_them(wires: Wires) -> None:
    control, (rank, daemon) = wires.connect(0), wires.connect(1)
    wires.proxy.drop(control=False)
    daemon.sendall(b"down")
    assert is_silent(rank)
    swallowed = wires.dial(2)
    swallowed.sendall(b"is anybody there")
    assert is_silent(swallowed)
    assert _says(control[1], control[0])
    wires.proxy.heal()
    assert is_reset(rank)
    assert is_reset(swallowed)


def test_data_ports_that_refuse_leave_alone_who_is_connected_until_it_heals(wires: Wires) -> None:
    control, (rank, daemon) = wires.connect(0), wires.connect(1)
    wires.proxy.refuse()
    wires.proxy.refuse()
    for number in (1, 2):
        with pytest.raises(ConnectionRefusedError):
            wires.dial(number)
    assert _says(daemon, rank)
    assert _says(control[1], control[0])
    wires.connect(0)
    wires.proxy.heal()
    again, daemon = wires.connect(1)
    assert _says(daemon, again)


def test_all_lanes_are_cut_and_control_lives(wires: Wires) -> None:
    control, lanes = wires.connect(0), [wires.connect(number) for number in (1, 1, 2)]
    assert settles(lambda: wires.proxy.lanes == 3, LIMIT_S)
    wires.proxy.cut_lanes()
    assert all(is_reset(side) for lane in lanes for side in lane)
    assert _says(control[1], control[0])
    assert wires.proxy.faults == {"cut_lane": 3}
    rank, daemon = wires.connect(1)
    assert _says(daemon, rank)


@pytest.mark.parametrize("harm", [FaultProxy.cut_lane, FaultProxy.drop_lane])
def test_a_lane_that_is_not_there_is_not_harmed_nor_is_another(
    wires: Wires, harm: Callable[[FaultProxy, int], None]
) -> None:
    control, (rank, daemon) = wires.connect(0), wires.connect(1)
    harm(wires.proxy, 1)
    assert _says(daemon, rank)
    assert _says(control[1], control[0])
    assert not wires.proxy.faults


def test_credit_is_kept_back_until_it_heals_and_nothing_of_it_is_lost(wires: Wires) -> None:
    control, (rank, daemon) = wires.connect(0), wires.connect(1)
    rank.sendall(b"before")
    assert take(daemon, 6) == b"before"
    wires.proxy.hold_credit()
    said = bytes(range(256)) * 1000  # more than the proxy keeps itself
    talk = Thread(target=rank.sendall, args=(said,))
    talk.start()
    assert is_silent(daemon)
    assert _says(daemon, rank), "records come as ever"
    assert _says(control[0], control[1]), "what is said over the control port goes through"
    later_rank, later = wires.connect(1)
    later_rank.sendall(b"later")
    assert is_silent(later)
    wires.proxy.heal()
    assert take(daemon, len(said)) == said
    assert take(later, 5) == b"later"
    talk.join(LIMIT_S)
    assert wires.proxy.faults == {"hold_credit": 1}
