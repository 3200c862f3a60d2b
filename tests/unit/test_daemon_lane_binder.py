"""Lanes that are bound one by one, with ports that may be taken for a moment."""

from collections.abc import Iterator
from typing import Any

import pytest

from emlio.daemon.lane_binder import LaneBinder
from emlio.daemon.lane_guard import LaneGuard
from emlio.daemon.reservation import Reservation
from emlio.errors import EmlioError, TransportError

FOR_A_MOMENT_NS = 250_000_000


class _Lane:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class _Network:
    """Gives what it was told to, in turn: a lane, no port, or an error."""

    def __init__(self, *answers: object) -> None:
        self._answers: Iterator[object] = iter(answers)

    def lane(self, high_water_mark: int, guest: object) -> object:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def exhausted(self) -> TransportError:
        return TransportError("none is free")


class _Told:
    """What the binder's caller hears."""

    def __init__(self) -> None:
        self.bound: list[Any] = []
        self.failed: list[EmlioError] = []

    def ask(self, binder: LaneBinder, lanes: int, now_ns: int, *, waits: bool = True) -> Reservation:
        reservation = Reservation(session=1, lanes=lanes, guard=LaneGuard(protection="clear"))
        binder.bind(reservation, now_ns, self.bound.append, self.failed.append, waits=waits)
        return reservation


def _binder(*answers: object) -> LaneBinder:
    network: Any = _Network(*answers)
    return LaneBinder(network, 16)


def test_lanes_that_find_ports_are_told_at_once() -> None:
    one, two, told = _Lane(), _Lane(), _Told()
    binder = _binder(one, two)
    told.ask(binder, 2, 0)
    assert (told.bound, told.failed, binder.due_ns(0)) == ([[one, two]], [], None)


def test_lanes_without_a_port_are_tried_again_and_keep_those_they_have() -> None:
    one, two, told = _Lane(), _Lane(), _Told()
    binder = _binder(one, None, None, two)
    told.ask(binder, 2, 0)
    assert (told.bound, told.failed) == ([], [])
    assert binder.due_ns(0) is not None
    binder.turn(1)
    assert told.bound == []
    binder.turn(2)
    assert (told.bound, told.failed, binder.due_ns(2)) == ([[one, two]], [], None)
    assert not one.closed


def test_lanes_that_find_no_port_in_time_fail_and_close_those_they_have() -> None:
    one, told = _Lane(), _Told()
    binder = _binder(one, None, None)
    told.ask(binder, 2, 0)
    binder.turn(FOR_A_MOMENT_NS)
    assert (told.bound, [str(error) for error in told.failed]) == ([], ["none is free"])
    assert one.closed
    assert binder.due_ns(FOR_A_MOMENT_NS) is None


def test_lanes_that_may_not_wait_fail_at_once() -> None:
    told = _Told()
    told.ask(_binder(None), 1, 0, waits=False)
    assert len(told.failed) == 1


@pytest.mark.parametrize("error", [TransportError("no more sockets"), RuntimeError("a defect")])
def test_any_error_is_told_and_closes_what_was_made(error: Exception) -> None:
    one, told = _Lane(), _Told()
    told.ask(_binder(one, error), 2, 0)
    assert told.bound == []
    assert str(error) in str(told.failed[0])
    assert one.closed


def test_lanes_that_are_given_up_are_closed_and_nothing_is_told() -> None:
    one, other, told = _Lane(), _Lane(), _Told()
    binder = _binder(one, None, None, other)
    reservation = told.ask(binder, 2, 0)
    told.ask(binder, 1, 0)
    binder.give_up(reservation)
    assert one.closed
    binder.turn(1)
    assert (told.bound, told.failed) == ([[other]], [])
    binder.close()


def test_the_end_closes_what_waits() -> None:
    one, told = _Lane(), _Told()
    binder = _binder(one, None)
    told.ask(binder, 2, 0)
    binder.close()
    assert one.closed
    assert binder.due_ns(0) is None
