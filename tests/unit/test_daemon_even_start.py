from emlio.daemon.lanes.outlet import LaneRamp

MS = 1_000_000


def allowed(start: LaneRamp, lanes: int, now_ns: int) -> list[int]:
    return [lane for lane in range(lanes) if start.may_have(lane, now_ns)]


def test_a_lane_gets_two_messages_until_each_has_had_one() -> None:
    start = LaneRamp(3)
    assert start.ends_ns is None, "nothing has begun that could end"
    start.gave(0, 1 * MS)
    start.gave(0, 2 * MS)
    assert allowed(start, 3, 3 * MS) == [1, 2]
    start.gave(1, 3 * MS)
    assert allowed(start, 3, 3 * MS) == [1, 2]
    start.gave(2, 4 * MS)
    assert allowed(start, 3, 4 * MS) == [0, 1, 2]
    assert start.ends_ns is None


def test_lanes_that_never_come_are_not_waited_for() -> None:
    start = LaneRamp(2)
    start.gave(1, 5 * MS)
    start.gave(1, 6 * MS)
    ends_ns = start.ends_ns
    assert ends_ns is not None
    assert allowed(start, 2, ends_ns - 1) == [0]
    assert allowed(start, 2, ends_ns) == [0, 1]
    assert start.ends_ns is None
    start.gave(1, ends_ns)
    assert allowed(start, 2, ends_ns) == [0, 1]


def test_a_single_lane_has_nobody_to_wait_for() -> None:
    start = LaneRamp(1)
    for now_ns in range(10):
        assert start.may_have(0, now_ns)
        start.gave(0, now_ns)
    assert start.ends_ns is None
