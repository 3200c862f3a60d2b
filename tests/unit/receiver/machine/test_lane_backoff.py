"""How often lanes knock that are not let in, beside one that is now and then."""

from emlio.receiver.addresses.connection_events import LaneEvent
from emlio_testing.fake_lanes import LaneStage


def test_one_lane_that_comes_up_does_not_have_all_others_knock_as_often_as_at_first() -> None:
    """A daemon admits one more each second where a session has used up its attempts."""
    stage = LaneStage(b"s" * 32)
    lanes = stage.set
    stage.connect("tcp://store1:5556", 64, 0)
    answered, due_ns = 0, 0
    for turn in range(400):
        now_ns = turn * 50_000_000
        for lane in stage.lanes[answered:]:
            enters = now_ns >= due_ns
            due_ns += 1_000_000_000 if enters else 0
            lane.events.append(LaneEvent.READY if enters else LaneEvent.TURNED_AWAY)
        answered = len(stage.lanes)
        stage.watch(now_ns)
    assert lanes.up >= 10
    assert len(stage.lanes) < 64 * 20, "about one attempt a second for each that is missing"


def test_where_the_only_lane_is_replaced_the_time_without_one_counts_from_then_on() -> None:
    stage = LaneStage(b"s" * 32)
    lanes = stage.set
    stage.connect("tcp://store1:5556", 1, 0)
    stage.lanes[0].events.append(LaneEvent.READY)
    stage.watch(1)
    assert lanes.down_ns is None
    (lane_reader,) = lanes
    stage.replace(lane_reader)
    stage.watch(7)
    assert lanes.down_ns == 7
    stage.watch(9)
    assert lanes.down_ns == 7
    stage.lanes[1].events.append(LaneEvent.READY)
    stage.watch(11)
    assert lanes.down_ns is None
