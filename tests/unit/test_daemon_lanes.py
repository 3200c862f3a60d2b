"""A session's lanes: states, turns, credit, and what its rank may say."""

import pytest

from emlio.daemon.lanes.group import Lane, LaneGroup, LaneState, lane_limit
from emlio.daemon.lanes.timers import Timers
from emlio.daemon.limits import MOST_LANE_FRAMES_QUEUED, MOST_LANE_MESSAGES
from emlio.daemon.streams import opening_of, paced_bytes
from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.reading.message_planner import NO_OPENING
from emlio.wire.credit import Credit, encode_credit
from emlio.wire.limits import MAX_LANES
from emlio.wire.seal import lane_group, lane_name

SECRET = b"s" * 32
S = 1_000_000_000


def group_of(lanes: int, *, up: bool = True, limit_bytes: int = 100, most_messages: int = 10) -> LaneGroup:
    group = LaneGroup(session=7, secret=SECRET, limit_bytes=limit_bytes, most_messages=most_messages)
    for number in range(lanes):
        lane = group.admit(number, 0)
        if up:
            group.came_up(lane)
    return group


def chosen(group: LaneGroup, lanes: int, size_bytes: int = 10) -> int | None:
    lane = group.choose(lanes, size_bytes, lambda _: True)
    if lane is None:
        return None
    lane.gave(size_bytes)
    return lane.number


def said(**fields: int) -> bytes:
    return encode_credit(Credit(**({"read_bytes": 0} | fields)))


def test_a_lane_may_hold_what_fills_the_buffers_or_three_messages() -> None:
    assert lane_limit(1 << 20, 4 << 20) == 6 << 20
    assert lane_limit(8 << 20, 4 << 20) == 24 << 20


def test_frames_under_way_leave_room_for_half_a_queue_that_libzmq_has_not_told_of() -> None:
    assert 2 * MOST_LANE_MESSAGES < MOST_LANE_FRAMES_QUEUED // 2


@pytest.mark.parametrize("most_messages", [1, 2, 3, 16, MOST_LANE_MESSAGES])
@pytest.mark.parametrize("message_bytes", [64 << 10, 2 << 20, 8 << 20, 64 << 20])
@pytest.mark.parametrize("lanes", [1, 11])
def test_the_short_messages_of_a_start_leave_room_for_usual_ones(
    lanes: int, most_messages: int, message_bytes: int
) -> None:
    opening = opening_of(lanes, message_bytes, most_messages)
    group = group_of(lanes, limit_bytes=lane_limit(message_bytes, 4 << 20), most_messages=most_messages)
    for _ in range(-(-opening.total_bytes // max(opening.message_bytes, 1))):
        assert chosen(group, lanes, opening.message_bytes) is not None
    assert chosen(group, lanes, message_bytes) is not None, "though nothing was reported as read"


def test_a_stream_over_a_single_lane_begins_with_messages_of_1_mib_too() -> None:
    assert opening_of(1, 8 << 20, 16).message_bytes == 1 << 20
    assert opening_of(1, 8 << 20, 16).total_bytes == 8 << 20
    assert opening_of(1, 64 << 10, 16) == NO_OPENING


def test_lanes_have_the_names_and_the_group_of_the_secret() -> None:
    group = group_of(2)
    assert group.label == lane_group(SECRET)
    assert [lane.name for lane in group] == [lane_name(SECRET, 0), lane_name(SECRET, 1)]


def test_lanes_take_turns_and_full_ones_are_left_out() -> None:
    group = group_of(3)
    assert [chosen(group, 3) for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    assert chosen(group, 3, 100) is None
    lanes = list(group)
    group.hear(lanes[1], said(read_bytes=20))
    assert [chosen(group, 3, 95), chosen(group, 3, 95)] == [1, None]
    assert [chosen(group, 3) for _ in range(3)] == [2, 0, 2]


def test_the_newest_lanes_are_used_so_that_who_replaces_a_lost_one_is() -> None:
    group = group_of(4)
    assert [chosen(group, 2) for _ in range(4)] == [2, 3, 2, 3]
    group.came_up(group.admit(9, 0))
    assert sorted(str(chosen(group, 2)) for _ in range(4)) == ["3", "3", "9", "9"]
    group.lost(list(group)[3])
    assert {chosen(group, 2) for _ in range(4)} == {2, 9}


def test_a_message_longer_than_the_limit_goes_over_an_empty_lane() -> None:
    group = group_of(1)
    assert chosen(group, 1, 5000) == 0
    assert chosen(group, 1, 1) is None


def test_messages_under_way_are_bounded_like_bytes() -> None:
    (lane,) = group = group_of(1, limit_bytes=1000, most_messages=2)
    lane.gave(10, 100)
    assert group.allows(lane, 10)
    lane.gave(10)
    assert not group.allows(lane, 10)
    group.hear(lane, said(read_bytes=10))
    assert not group.allows(lane, 10), "the second frame of the first message was not read"
    group.hear(lane, said(read_bytes=110))
    assert group.allows(lane, 10)
    assert (lane.under_way_bytes, lane.sequence) == (10, 2)


def test_lanes_come_up_by_what_they_say_and_only_the_newest_are_awaited() -> None:
    group = group_of(3, up=False)
    assert [lane.number for lane in group.awaited(2)] == [2, 1]
    assert chosen(group, 2) is None
    first, second, third = group
    group.hear(second, said())
    assert [lane.number for lane in group.awaited(2)] == [2]
    assert (first.state, second.state) == (LaneState.AWAITED, LaneState.UP)
    group.lost(third)
    assert [lane.number for lane in group.awaited(2)] == [0]
    group.came_up(first)
    group.came_up(first)
    assert group.awaited(2) == []


def test_a_lane_that_is_gone_stays_gone() -> None:
    lane = Lane(0, b"L", 100, 0)
    lane.becomes(LaneState.GONE)
    for state in LaneState:
        with pytest.raises(LocalProtocolError, match=f"GONE to {state.name}"):
            lane.becomes(state)


def test_a_session_keeps_twice_as_many_lanes_as_it_may_use() -> None:
    group = group_of(2 * MAX_LANES)
    assert group.surplus() is None
    group.admit(1000, 0)
    surplus = group.surplus()
    assert surplus is not None
    assert surplus.number == 0
    group.lost(surplus)
    assert group.surplus() is None


def test_a_group_is_young_until_a_lane_had_a_message() -> None:
    group = group_of(2)
    assert group.is_young
    chosen(group, 2)
    assert not group.is_young


@pytest.mark.parametrize("data", [b"", b"garbage", said()[:-1], bytes(200), said(read_bytes=51), said(version=2)])
def test_what_is_no_credit_or_says_too_much_is_an_error(data: bytes) -> None:
    (lane,) = group = group_of(1)
    lane.gave(50)
    with pytest.raises(RemoteProtocolError):
        group.hear(lane, data)


def test_credit_for_a_stream_counts_from_before_it_is_opened_over_any_lane() -> None:
    first, second = group = group_of(2)
    opened = group.open(1, Credit(read_bytes=0, stream=1, allowed_bytes=10, slot=5))
    assert opened.allows((0, 4), 10)
    group.hear(first, said(stream=2, allowed_bytes=30, slot=2))
    group.hear(second, said(stream=2, allowed_bytes=20, slot=9))
    group.hear(second, said(stream=1, allowed_bytes=11, slot=5))
    assert opened.allows((0, 4), 11)
    assert not opened.allows((0, 5), 11)
    following = group.open(2, Credit(read_bytes=0, stream=2, allowed_bytes=5))
    assert following.allows((0, 8), 30)
    assert not following.allows((0, 8), 31)
    group.hear(first, said(stream=1, allowed_bytes=999, slot=999))
    assert not following.allows((0, 8), 31)


def test_credit_for_a_stream_far_ahead_does_not_keep_the_next_one_from_being_opened() -> None:
    (lane,) = group = group_of(1)
    group.hear(lane, said(stream=1 << 60, allowed_bytes=30, slot=2))
    opened = group.open(1, Credit(read_bytes=0, stream=1, allowed_bytes=10, slot=5))
    group.hear(lane, said(stream=1, allowed_bytes=20))
    assert opened.allows((0, 4), 20)


def test_timers_come_in_the_order_they_are_due_and_not_before() -> None:
    timers, done = Timers(), list[str]()
    for due_ns, name in ((30, "c"), (10, "a"), (10, "b")):
        timers.at(due_ns, lambda name=name: done.append(name))  # type: ignore[misc]
    assert timers.due_ns() == 10
    assert timers.take(9) is None
    while (action := timers.take(10)) is not None:
        action()
    assert (done, timers.due_ns()) == (["a", "b"], 30)


def test_the_oldest_lanes_are_retired_and_idle_once_all_was_read_of_them() -> None:
    group = group_of(4)
    assert [chosen(group, 4) for _ in range(4)] == [0, 1, 2, 3]
    assert group.narrow(2)
    assert group.idle() == ()
    assert [chosen(group, 2) for _ in range(4)] == [2, 3, 2, 3]
    first, second, *_ = group
    group.hear(first, said(read_bytes=10))
    assert group.idle() == (0,)
    group.hear(second, said(read_bytes=10))
    assert group.idle() == (0, 1)
    assert not group.narrow(2), "they are retired already"
    group.came_up(group.admit(4, 0))
    assert [lane.number for lane in group if lane.retired] == [0, 1, 2]


def test_a_retired_lane_is_not_used_again_when_more_are_wanted() -> None:
    group = group_of(3)
    group.narrow(1)
    assert {chosen(group, 3) for _ in range(3)} == {2}
    group.narrow(3)
    group.came_up(group.admit(3, 0))
    assert {chosen(group, 3) for _ in range(4)} == {2, 3}
    for lane in list(group)[:2]:
        group.lost(lane)
    assert group.idle() == ()


def test_no_lane_is_retired_for_one_that_is_awaited() -> None:
    """It may never come up: another one takes messages until then."""
    group = group_of(2)
    awaited = [group.admit(number, 0) for number in (2, 3)]
    assert not group.narrow(3)
    assert {chosen(group, 3) for _ in range(4)} == {0, 1}
    group.came_up(awaited[0])
    assert not any(lane.retired for lane in group)
    group.came_up(awaited[1])
    assert [lane.number for lane in group if lane.retired] == [0]


def test_a_lane_that_is_awaited_is_retired_when_newer_ones_are_up() -> None:
    group = group_of(1, up=False)
    for number in (1, 2):
        group.came_up(group.admit(number, 0))
    group.narrow(1)
    assert [lane.number for lane in group if lane.retired] == [0, 1]
    assert group.awaited(3) == []


def test_a_lanes_pace_is_what_was_read_of_it_over_the_time_that_this_took() -> None:
    group = LaneGroup(session=1, secret=SECRET, limit_bytes=100 << 20)
    lane = group.admit(0, 0)
    assert group.pace == 0, "nothing was read yet"
    lane.gave(1 << 20, now_ns=0)
    lane.gave(3 << 20, now_ns=0)
    group.hear(lane, said(read_bytes=1 << 20), now_ns=S // 2)
    assert group.pace == 2 << 20
    group.hear(lane, said(read_bytes=4 << 20), now_ns=S)
    assert group.pace == 4 << 20, "the message waited for the one before it"
    lane.gave(1 << 20, now_ns=100 * S)
    group.hear(lane, said(read_bytes=5 << 20), now_ns=101 * S)
    assert group.pace == 1 << 20, "the time in which nothing was under way does not count"
    group.lost(lane)
    assert group.pace == 0, "another lane's is not known"


@pytest.mark.parametrize(("pace", "size"), [(0, 1 << 20), (1000, 256 << 10), (2 << 20, 1 << 20), (100 << 20, 50 << 20)])
def test_a_message_takes_half_a_second_at_most(pace: int, size: int) -> None:
    assert paced_bytes(pace) == size
