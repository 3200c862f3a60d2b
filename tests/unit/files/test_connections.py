"""The connection for each answer: short ones keep the first, long ones take more where the path is long."""

import os
from typing import cast

import pytest

from emlio.errors import RefusedError
from emlio.files.connections import Connections
from emlio.receiver.process_connection import ProcessConnection

_LONG = 1 << 20


class _Connection:
    """Stands for a connection, its shell and its engine."""

    def __init__(self, wanted: int, most: int, made: "list[_Connection]") -> None:
        self.wanted, self.most, self.made = wanted, most, made
        self.shell = self.engine = self.questions = self.asker = self
        self.window_bytes = 8 << 20
        self.message_bytes = 1 << 20
        self.closed = False
        made.append(self)

    def connected(self) -> "_Connection":
        if self.made.index(self) >= self.most:
            raise RefusedError("no sessions are left", code="no-session")
        return self

    @property
    def current(self) -> "_Connection":
        return self

    def connections_wanted(self) -> int:
        return self.wanted

    def close(self) -> None:
        self.closed = True

    def __copy__(self) -> "_Connection":
        return _Connection(self.wanted, self.most, self.made)


def _connections(wanted: int, most: int = 99) -> tuple[Connections, list[_Connection]]:
    made: list[_Connection] = []
    return Connections(cast("ProcessConnection", _Connection(wanted, most, made))), made


def _chosen(connections: Connections, made: list[_Connection], sizes: list[int]) -> list[int]:
    """Return the numbers of connections for answers of these sizes; those that are being made are there for the next one."""
    chosen: list[int] = []
    for size in sizes:
        chosen.append(made.index(cast("_Connection", connections.begin(size).connection)))
        for thread in connections._of[os.getpid()].making:
            thread.join()
    return chosen


@pytest.mark.parametrize(("wanted", "others"), [(1, 1), (3, 3), (14, 8)])
def test_long_answers_take_as_many_connections_as_the_path_and_leave_the_first(wanted: int, others: int) -> None:
    connections, made = _connections(wanted)
    assert _chosen(connections, made, [1024] * 9) == [0] * 9
    assert _chosen(connections, made, [_LONG] * 4) == [0] * 4  # few need no other
    assert len(made) == 1
    assert _chosen(connections, made, [_LONG]) == [0]  # which does not wait for the one that is made
    assert set(_chosen(connections, made, [_LONG] * 100)) == set(range(1, 1 + others))
    assert _chosen(connections, made, [1024]) == [0]
    connections.close()
    assert all(one.closed for one in made)


def test_a_slow_path_needs_no_other_connection() -> None:
    connections, made = _connections(14)
    made[0].window_bytes = 1 << 20
    assert _chosen(connections, made, [_LONG] * 100) == [0] * 100


def test_what_has_come_is_under_way_no_more() -> None:
    connections, made = _connections(8)
    for _ in range(100):
        loads = [connections.begin(_LONG) for _ in range(4)]
        for load in loads:
            connections.end(load, _LONG)
    assert len(made) == 1


def test_a_connection_that_is_refused_is_done_without() -> None:
    connections, made = _connections(8, most=2)
    assert set(_chosen(connections, made, [_LONG] * 100)) == {0, 1}
    assert all(one.closed for one in made[2:])
    assert len(made) == 1 + 8, "no more are made when they were refused"


@pytest.mark.parametrize(("message_bytes", "answer_bytes"), [(1 << 20, 1 << 20), (64 << 10, 256 << 10)])
def test_an_answer_is_as_long_as_a_message_and_not_a_short_one(message_bytes: int, answer_bytes: int) -> None:
    connections, made = _connections(1)
    made[0].message_bytes = message_bytes
    assert connections.answer_bytes() == answer_bytes
