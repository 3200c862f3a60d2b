"""How many lanes are let in at one time, and when one counts no more.

Covers: the count, and lanes that end in each way a table of lanes knows. Does not cover: real connections
(tests/integration/test_daemon_lanes_let_in.py).
"""

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from emlio.daemon.access.connected_lanes import ConnectedLanes
from emlio.daemon.lanes.group import LaneGroup
from emlio.daemon.lanes.table import LaneTable
from emlio.daemon.lanes.timers import Timers
from emlio.daemon.network.lane_socket import Connection
from emlio.wire.limits import MAX_LANES
from emlio.wire.seal import lane_group

SECRET = b"s" * 32
LABEL = lane_group(SECRET)
SECOND = 1_000_000_000


def test_a_session_a_client_and_all_have_their_bounds() -> None:
    let_in = ConnectedLanes(most=6, most_each=4, most_session=3)
    for group, owner in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        let_in.expect(group, owner)
    assert [let_in.take("a") for _ in range(3)] == [None] * 3
    assert let_in.take("a") == "its session already has 3 lanes, which is the limit"
    assert let_in.take("b") is None
    assert let_in.take("b") == "its client already has 4 of 4 lanes"
    assert [let_in.take("c") for _ in range(2)] == [None] * 2
    assert let_in.take("c") == "its client already has 2 of 4 lanes, and all clients together have 6 of 6"
    assert let_in.lanes == 6
    let_in.give_back("a")
    assert let_in.take("c") is None


def test_lanes_of_a_session_that_is_over_count_until_they_have_ended() -> None:
    let_in = ConnectedLanes(most=100, most_each=2)
    let_in.expect("a", b"one")
    assert [let_in.take("a") for _ in range(2)] == [None] * 2
    let_in.forget("a")
    let_in.forget("a")
    let_in.expect("b", b"one")
    assert let_in.take("a") == ""
    assert let_in.take("b") is not None
    let_in.give_back("a")
    assert let_in.take("b") is None
    let_in.give_back("a")
    assert let_in._sessions.keys() == {"b"}
    assert let_in.take("a") == ""


@dataclass
class Socket:
    """Notes whom it hung up on."""

    there: list[Connection] = field(default_factory=list[Connection])
    ended: list[Connection] = field(default_factory=list[Connection])
    failures: list[OSError] = field(default_factory=list[OSError])

    def is_connected(self, connection: Connection) -> bool:
        return connection not in self.ended

    def disconnect(self, connection: Connection) -> bool:
        self.ended.append(connection)
        return True

    def connections(self) -> Iterator[Connection]:
        if self.failures:
            raise self.failures.pop()
        yield from self.there


class Stage:
    """A table of lanes, and the lanes of which it said that they have ended."""

    def __init__(self) -> None:
        self.socket, self.timers, self.ended = Socket(), Timers(), list[str]()
        self.table = LaneTable(
            cast("Any", self.socket),
            self.timers,
            lambda _, error: pytest.fail(str(error)),
            lambda _: None,
            self.ended.append,
        )
        self.table.register(LaneGroup(session=1, secret=SECRET, limit_bytes=1000))

    def connect(self, number: int, *, says: bool) -> None:
        session = self.table.admit(LABEL, number)
        assert session is not None
        lane = max(session.group, key=lambda lane: lane.number)
        session.group.came_up(lane)
        if says:
            connection = Connection(descriptor=number, peer=("10.0.0.1", number))
            session.connections[lane] = connection
            self.table._descriptors[number] = lane, session

    def pass_time(self, seconds: int) -> None:
        """Do what is due within so many seconds of the first that is."""
        due_ns = self.timers.due_ns()
        assert due_ns is not None
        while (action := self.timers.take(due_ns + seconds * SECOND)) is not None:
            action()


def test_lanes_beyond_those_kept_are_ended_and_count_no_more() -> None:
    stage = Stage()
    for number in range(3 * MAX_LANES):
        stage.connect(number, says=True)
    assert stage.ended == [LABEL] * MAX_LANES
    assert len(stage.socket.ended) == MAX_LANES


@pytest.mark.parametrize("says", [True, False])
def test_all_lanes_of_a_session_that_is_over_count_until_they_are_ended(says: bool) -> None:
    stage = Stage()
    for number in range(3):
        stage.connect(number, says=says)
    stage.table.end(LABEL)
    assert stage.ended == []
    stage.pass_time(2)
    assert stage.ended == ([LABEL] * 3 if says else [])
    while stage.timers.due_ns() is not None:
        stage.pass_time(60)
    assert stage.ended == [LABEL] * 3, "each once"


def test_a_lane_let_in_while_its_session_ended_is_sought_and_hung_up_on() -> None:
    stage = Stage()
    stage.table.end(LABEL)
    stage.socket.there.append(Connection(descriptor=9, peer=("10.0.0.1", 9)))
    assert stage.table.admit(LABEL, 9) is None
    while stage.timers.due_ns() is not None:
        stage.pass_time(60)
    assert stage.socket.ended == stage.socket.there
    assert stage.ended == [LABEL]


def test_a_search_that_fails_is_tried_again() -> None:
    stage = Stage()
    stage.socket.failures.append(OSError(errno.EMFILE, "Too many open files"))
    stage.table.end(LABEL)
    stage.socket.there.append(Connection(descriptor=9, peer=("10.0.0.1", 9)))
    assert stage.table.admit(LABEL, 9) is None
    while stage.timers.due_ns() is not None:
        stage.pass_time(60)
    assert stage.socket.failures == []
    assert stage.socket.ended == stage.socket.there


def test_a_group_is_used_again_only_once_its_lanes_are_gone() -> None:
    let_in = ConnectedLanes(most=100, most_each=50, most_session=2)
    assert let_in.expect("g", b"one")
    assert let_in.take("g") is None
    let_in.forget("g")
    assert not let_in.expect("g", b"other"), "its lanes would count for another one"
    let_in.give_back("g")
    assert let_in.lanes == 0
    assert let_in.expect("g", b"other")
