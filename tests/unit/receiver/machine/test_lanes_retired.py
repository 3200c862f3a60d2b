"""Lanes of a session that are given up because fewer are wanted, at the rank."""

from emlio.receiver.addresses.connection_events import LaneEvent
from emlio.wire.credit import Credit
from emlio_testing.fake_lanes import LaneStage

S = 1_000_000_000
SECRET = b"s" * 32
PLACE = "tcp://store1:5556"
CREDIT = Credit(read_bytes=0, stream=3, allowed_bytes=100, epoch=1, slot=2, must_epoch=0, must_slot=5)


def test_fewer_lanes_are_wanted_and_surplus_ones_stay_until_the_daemon_says_they_are_idle() -> None:
    stage = LaneStage(SECRET)
    stage.connect(PLACE, 4, 0)
    stage.set.want(2)
    stage.watch(S)
    assert [lane.number for lane in stage.open] == [0, 1, 2, 3]
    stage.set.retire([0, 1, 9])
    stage.watch(2 * S)
    assert [lane.number for lane in stage.open] == [2, 3]
    stage.set.retire([0, 1])
    assert stage.watch(3 * S) is False
    assert [lane.number for lane in stage.open] == [2, 3]


def test_lanes_that_are_retired_while_more_are_wanted_are_replaced() -> None:
    stage = LaneStage(SECRET)
    stage.connect(PLACE, 3, 0)
    stage.set.want(1)
    stage.set.want(3)
    stage.set.retire([0, 1])
    stage.watch(S)
    assert [lane.number for lane in stage.open] == [2, 3, 4]


def test_no_lane_is_wanted_before_there_is_an_address() -> None:
    stage = LaneStage(SECRET)
    stage.set.want(5)
    stage.watch(0)
    assert stage.open == []
    assert stage.set.wanted == 0


def test_credit_that_was_said_on_an_idle_lane_is_said_again() -> None:
    stage = LaneStage(SECRET)
    stage.connect(PLACE, 2, 0)
    for lane in stage.open:
        lane.events.append(LaneEvent.READY)
    stage.watch(0)
    stage.say(CREDIT, changed=True, quiet=True)
    spoken = [lane for lane in stage.open if lane.said and lane.said[-1].stream == CREDIT.stream]
    stage.set.want(1)
    stage.set.retire([spoken[0].number])
    stage.say(CREDIT, changed=False, quiet=True)
    (left,) = [lane for lane in stage.open if lane is not spoken[0]]
    assert left.said[-1].allowed_bytes == CREDIT.allowed_bytes
