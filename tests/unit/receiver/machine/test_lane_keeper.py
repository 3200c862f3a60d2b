"""A daemon whose data port cannot be reached, and what is said of it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from emlio.receiver.machine.lane_keeper import LaneKeeper
from emlio.receiver.machine.source import SourceState, moved
from emlio.receiver.machine.surroundings import Outbox

HEARTBEAT_NS = 10
BLOCKED, LOST = SourceState.BLOCKED, SourceState.LOST


class _Flow:
    """Notes who is dealt shards again."""

    def __init__(self) -> None:
        self.also: list[object] = []

    def share_out(self, also: object = None) -> None:
        self.also.append(also)

    def needs(self, _: object) -> bool:
        return False


class _Source(SimpleNamespace):
    """A daemon without lanes of its own."""

    def unblock(self) -> None:
        self.state = moved(self.state, "unblock")

    def without_lanes_ns(self) -> int:
        lanes = self.stream.lanes
        return 50 if self.state is BLOCKED and lanes.wanted and not lanes.up else 0


@pytest.mark.parametrize(
    ("state", "up", "wanted", "returns"),
    [(BLOCKED, 1, 2, True), (BLOCKED, 0, 2, False), (LOST, 0, 2, False), (LOST, 0, 0, False), (BLOCKED, 0, 0, True)],
    ids=["a lane is up", "none is", "the conversation is lost", "and its lanes are closed", "none is wanted any more"],
)
def test_it_is_reachable_again_when_a_lane_is_up_and_not_because_the_conversation_was_lost(
    state: SourceState, up: int, wanted: int, returns: bool
) -> None:
    assignment = _Flow()
    config = SimpleNamespace(recovery=SimpleNamespace(heartbeat_ns=HEARTBEAT_NS, timeout_ns=100))
    keeper = LaneKeeper(cast("Any", config), Outbox(), *cast("Any", ((), assignment, None, ())))
    stream = SimpleNamespace(lanes=SimpleNamespace(up=up, wanted=wanted))
    source = _Source(state=state, is_here=False, peer="store1:5555", stream=stream)
    keeper.look(cast("Any", source))
    assert source.state is (SourceState.HERE if returns else state)
    assert assignment.also == ([source] if returns else [])
