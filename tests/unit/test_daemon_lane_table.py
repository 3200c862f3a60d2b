"""Lanes that ended without a word: a daemon finds them when their rank connects another one.

Covers: losing them, waking their session. Does not cover: real connections (tests/integration/lanes/test_ending.py).
"""

from typing import Any, cast

import pytest

from emlio.daemon.lanes.group import LaneGroup, LaneState
from emlio.daemon.lanes.table import LaneSession, LaneTable
from emlio.daemon.lanes.timers import Timers
from emlio.daemon.network.lane_socket import Connection
from emlio.wire.seal import lane_group

SECRET = b"s" * 32
SECOND = 1_000_000_000


class _Socket:
    """Knows which connections there are."""

    def __init__(self) -> None:
        self.ended: set[Connection] = set()

    def is_connected(self, connection: Connection) -> bool:
        return connection not in self.ended


@pytest.mark.parametrize("ends", [True, False])
def test_a_lane_that_ended_without_a_word_is_lost_and_its_session_goes_on_over_others(ends: bool) -> None:
    socket, timers, woken = _Socket(), Timers(), list[LaneSession]()
    table = LaneTable(cast("Any", socket), timers, lambda _, error: pytest.fail(str(error)), woken.append)
    label = lane_group(SECRET)
    table.register(LaneGroup(session=1, secret=SECRET, limit_bytes=1000))
    session = table.admit(label, 0)
    assert session is not None
    (lane,) = session.group
    session.group.came_up(lane)
    connection = Connection(descriptor=99, peer=("10.0.0.1", 5))
    session.connections[lane] = connection
    if ends:
        socket.ended.add(connection)
    table.admit(label, 1)
    now_ns = timers.due_ns()
    assert now_ns is not None
    while (action := timers.take(now_ns + 2 * SECOND)) is not None:
        action()
    assert (lane.state is LaneState.GONE) == ends
    assert woken == ([session] if ends else [])
