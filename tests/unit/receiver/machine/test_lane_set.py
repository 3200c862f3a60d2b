"""A session's lanes at the rank, without sockets: numbered, watched, replaced, and told of credit."""

from typing import Any

import numpy as np
import pytest

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.receiver.addresses.connection_events import LaneEvent
from emlio.receiver.machine.lane_set import LaneReader, LaneSet
from emlio.receiver.machine.message import Message
from emlio.wire.credit import Credit
from emlio.wire.data import DATA_VERSION, DataFrame, DataHeader, data_tail, decode_data_header, encode_data_header
from emlio.wire.seal import lane_group, lane_name, lane_token
from emlio_testing.fake_lanes import FakeLane, LaneStage

MS = 1_000_000
S = 1_000_000_000
SECRET = b"s" * 32
PLACE = "tcp://store1:5556"
LOST = [LaneEvent.UNREACHABLE, LaneEvent.TURNED_AWAY, LaneEvent.ENDED]
CREDIT = Credit(read_bytes=0, stream=3, allowed_bytes=100, epoch=1, slot=2, must_epoch=0, must_slot=5)


class Takes:
    """A stream all of whose messages are wanted."""

    def open(self, frame: DataFrame, payload: memoryview) -> Message | None:
        header = decode_data_header(frame.header, len(payload))
        return Message(header=header, payload=payload, sizes=header.record_sizes())


def frame_of(lane: int, sequence: int) -> memoryview:
    fields: dict[str, Any] = {
        "session": 1,
        "stream": 1,
        "number": sequence,
        "epoch": 0,
        "slot": 0,
        "count": 1,
        "ids_crc": 0,
    }
    header = DataHeader(version=DATA_VERSION, sizes=np.array([50], "<u4").tobytes(), **fields)
    head = encode_data_header(header)
    return memoryview(bytes(50) + data_tail(head, crc32c(head), lane, sequence))


@pytest.fixture
def stage() -> LaneStage:
    return LaneStage(SECRET)


@pytest.fixture
def lanes(stage: LaneStage) -> LaneSet:
    return stage.set


def brought_up(stage: LaneStage, count: int, now_ns: int = 0) -> list[FakeLane]:
    stage.connect(PLACE, count, now_ns)
    for lane in stage.open:
        lane.events += (LaneEvent.CONNECTED, LaneEvent.READY)
    assert not stage.watch(now_ns)
    assert stage.set.up == count
    return stage.open


# ---- connecting ---------------------------------------------------------------------------------------------------


def test_lanes_are_numbered_and_show_what_follows_from_the_secret(lanes: LaneSet, stage: LaneStage) -> None:
    stage.connect(PLACE, 3, 0)
    for number, (lane_reader, lane) in enumerate(zip(lanes, stage.lanes, strict=True)):
        assert lane_reader.number == number
        assert lane.endpoint == PLACE
        assert lane.shown.user == f"{lane_group(SECRET)}.{number}".encode()
        assert lane.shown.token == lane_token(SECRET, number)
        assert lane.shown.name == lane_name(SECRET, number)


def test_each_lane_says_a_credit_as_soon_as_it_is_made(lanes: LaneSet, stage: LaneStage) -> None:
    stage.connect(PLACE, 2, 0)
    assert [lane.said for lane in stage.lanes] == [[Credit(read_bytes=0)]] * 2


def test_more_lanes_are_added_and_fewer_take_none_away(lanes: LaneSet, stage: LaneStage) -> None:
    for count, there in ((2, 2), (5, 5), (3, 5), (5, 5)):
        stage.connect(PLACE, count, 0)
        assert (len(lanes), lanes.missing, len(stage.lanes)) == (there, 0, there)
    assert stage.open == stage.lanes


def test_lanes_to_another_endpoint_replace_those_to_the_old_one(lanes: LaneSet, stage: LaneStage) -> None:
    old = brought_up(stage, 3)
    stage.connect("tcp://store1:6000", 2, 7)
    assert all(lane.closed for lane in old)
    assert [lane.endpoint for lane in stage.open] == ["tcp://store1:6000"] * 2
    assert [lane_reader.number for lane_reader in lanes] == [3, 4], (
        "the session is the same, so no number is used again"
    )
    assert (lanes.up, lanes.down_ns) == (0, 7)


def test_before_an_endpoint_is_known_nothing_is_missing(lanes: LaneSet, stage: LaneStage) -> None:
    assert (len(lanes), lanes.missing, lanes.deadline_ns(), lanes.down_ns) == (0, 0, None, None)
    assert not stage.watch(S)
    assert not stage.lanes


# ---- watching -----------------------------------------------------------------------------------------------------


def test_no_lane_is_up_before_the_daemon_has_let_it_in(lanes: LaneSet, stage: LaneStage) -> None:
    stage.connect(PLACE, 2, 5)
    stage.lanes[0].events.append(LaneEvent.CONNECTED)
    assert not stage.watch(6)
    assert (lanes.up, lanes.down_ns) == (0, 5)
    stage.lanes[0].events.append(LaneEvent.READY)
    assert not stage.watch(7)
    assert (lanes.up, lanes.down_ns) == (1, None)


def test_a_lane_that_brought_something_is_up_whatever_is_known_of_it(lanes: LaneSet, stage: LaneStage) -> None:
    stage.connect(PLACE, 1, 0)
    (lane_reader,) = lanes
    assert lane_reader.take(frame_of(0, 0), Takes()) is not None
    assert lanes.up == 1
    stage.lanes[0].events.append(LaneEvent.ENDED)
    assert stage.watch(1), "messages may have been lost with it"


@pytest.mark.parametrize("event", LOST)
def test_a_lane_that_is_lost_is_replaced_by_one_of_the_next_number(
    lanes: LaneSet, stage: LaneStage, event: LaneEvent
) -> None:
    first, second = brought_up(stage, 2)
    first.events += (event, LaneEvent.TURNED_AWAY)  # what comes after its end is nothing
    assert stage.watch(S), "messages may have been lost with it"
    assert first.closed
    assert not second.closed
    assert (len(lanes), lanes.missing, lanes.trouble) == (1, 1, event)
    assert lanes.down_ns is None, "another one is up"
    due_ns = lanes.deadline_ns()
    assert due_ns is not None
    assert S + 25 * MS <= due_ns <= S + 50 * MS
    assert not stage.watch(due_ns - 1)
    assert lanes.missing == 1
    assert not stage.watch(due_ns)
    assert [lane_reader.number for lane_reader in lanes] == [1, 2]
    assert lanes.deadline_ns() is None


@pytest.mark.parametrize("event", LOST)
def test_with_a_lane_that_never_came_up_no_message_was_lost(lanes: LaneSet, stage: LaneStage, event: LaneEvent) -> None:
    stage.connect(PLACE, 1, 0)
    stage.lanes[0].events.append(event)
    assert not stage.watch(S)
    assert (lanes.up, lanes.missing, lanes.trouble, lanes.down_ns) == (0, 1, event, 0)


def test_attempts_that_fail_become_rarer_and_no_number_is_used_twice(lanes: LaneSet, stage: LaneStage) -> None:
    stage.connect(PLACE, 1, 0)
    now_ns, waited_ns = 0, list[int]()
    for _ in range(12):
        stage.open[0].events.append(LaneEvent.UNREACHABLE)
        stage.watch(now_ns)
        due_ns = lanes.deadline_ns()
        assert due_ns is not None
        waited_ns.append(due_ns - now_ns)
        now_ns = due_ns
        stage.watch(now_ns)
    for turn, delay_ns in enumerate(waited_ns):
        most_ns = min(50 * MS << turn, 2 * S)
        assert most_ns // 2 <= delay_ns <= most_ns
    assert len({lane.shown.user for lane in stage.lanes}) == 13
    assert lanes.down_ns == 0


def test_lanes_that_are_lost_together_wait_no_longer_than_one(lanes: LaneSet, stage: LaneStage) -> None:
    for lane in brought_up(stage, 16):
        lane.events.append(LaneEvent.ENDED)
    assert stage.watch(S)
    due_ns = lanes.deadline_ns()
    assert due_ns is not None
    assert due_ns <= S + 50 * MS
    assert lanes.down_ns == S
    stage.watch(due_ns)
    assert [lane_reader.number for lane_reader in lanes] == list(range(16, 32))


def test_a_lane_that_comes_up_ends_the_trouble(lanes: LaneSet, stage: LaneStage) -> None:
    stage.connect(PLACE, 1, 0)
    for turn in range(1, 5):
        stage.open[0].events.append(LaneEvent.TURNED_AWAY)
        stage.watch(turn * 10 * S)
        stage.watch(turn * 10 * S + 5 * S)
    stage.open[0].events.append(LaneEvent.READY)
    stage.watch(60 * S)
    assert (lanes.up, lanes.trouble, lanes.down_ns) == (1, None, None)
    stage.open[0].events.append(LaneEvent.ENDED)
    assert stage.watch(70 * S)
    due_ns = lanes.deadline_ns()
    assert due_ns is not None
    assert due_ns <= 70 * S + 50 * MS, "attempts are as frequent as at first"
    assert lanes.down_ns == 70 * S


def test_renewing_closes_all_lanes_and_connects_as_many_others(lanes: LaneSet, stage: LaneStage) -> None:
    old = brought_up(stage, 3)
    stage.renew(9)
    assert all(lane.closed for lane in old)
    assert [lane_reader.number for lane_reader in lanes] == [3, 4, 5]
    assert (lanes.up, lanes.down_ns) == (0, 9)


def test_a_lane_over_which_anything_came_that_cannot_be_understood_is_replaced_at_once(
    lanes: LaneSet, stage: LaneStage
) -> None:
    first, _ = brought_up(stage, 2)
    lane_reader = stage.tap(first)
    with pytest.raises(RemoteProtocolError, match="daemon store1 lane 0: message 0 must come next, got 1"):
        lane_reader.take(frame_of(0, 1), Takes())
    stage.replace(lane_reader)
    stage.replace(lane_reader)
    assert lanes.find(lane_reader.number) is None
    assert [lane_reader.number for lane_reader in lanes] == [1, 2]
    assert first.closed


def test_closing_ends_all_and_asks_for_none_until_it_is_connected_again(lanes: LaneSet, stage: LaneStage) -> None:
    brought_up(stage, 2)
    for _ in range(2):
        stage.close()
        assert not stage.open
        assert (len(lanes), lanes.missing, lanes.endpoint, lanes.deadline_ns(), lanes.down_ns) == (0, 0, "", None, None)
    stage.connect(PLACE, 1, 0)
    assert [lane_reader.number for lane_reader in lanes] == [2]


def test_one_lane_that_comes_up_does_not_have_all_others_knock_as_often_as_at_first(
    lanes: LaneSet, stage: LaneStage
) -> None:
    """A daemon admits one more each second where a session has used up its attempts."""
    stage.connect(PLACE, 64, 0)
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


def test_where_the_only_lane_is_replaced_the_time_without_one_counts_from_then_on(
    lanes: LaneSet, stage: LaneStage
) -> None:
    stage.connect(PLACE, 1, 0)
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


# ---- credit -------------------------------------------------------------------------------------------------------


def test_what_was_read_of_a_lane_is_said_on_that_lane_with_the_streams_credit(lanes: LaneSet, stage: LaneStage) -> None:
    first, second = brought_up(stage, 2)
    frame = frame_of(0, 0)
    assert stage.tap(first).take(frame, Takes()) is not None
    stage.say(CREDIT, changed=False, quiet=True)
    told = first.said[-1]
    assert told.read_bytes == len(frame)
    assert (told.stream, told.allowed_bytes, told.epoch, told.slot) == (3, 100, 1, 2)
    assert (told.must_epoch, told.must_slot) == (0, 5)
    assert len(second.said) == 1, "nothing was read of it"
    stage.say(CREDIT, changed=False, quiet=True)
    assert len(first.said) == 2, "it was told"


def test_credit_that_has_changed_is_said_once_on_a_lane_that_is_up(lanes: LaneSet, stage: LaneStage) -> None:
    stage.connect(PLACE, 3, 0)
    stage.lanes[2].events.append(LaneEvent.READY)
    stage.watch(0)
    stage.say(CREDIT, changed=True, quiet=True)
    assert [lane.said[1:] for lane in stage.lanes] == [[], [], [CREDIT]]


def test_credit_that_has_changed_is_said_where_something_was_read_and_nowhere_else(
    lanes: LaneSet, stage: LaneStage
) -> None:
    _, second, third = brought_up(stage, 3)
    for number, lane in ((1, second), (2, third)):
        stage.tap(lane).take(frame_of(number, 0), Takes())
    stage.say(CREDIT, changed=True, quiet=True)
    assert [len(lane.said) for lane in stage.lanes] == [1, 2, 2]


def test_credit_that_no_lane_takes_is_said_again(lanes: LaneSet, stage: LaneStage) -> None:
    stage.say(CREDIT, changed=True, quiet=True)
    full, other = brought_up(stage, 2)
    assert [lane.said for lane in (full, other)] == [[CREDIT], [CREDIT]], "there was no lane before"
    full.takes = other.takes = False
    more = Credit(read_bytes=0, stream=3, allowed_bytes=200)
    stage.say(more, changed=True, quiet=True)
    other.takes = True
    stage.say(more, changed=False, quiet=True)
    assert other.said[-1] == more
    told = len(other.said)
    stage.say(more, changed=False, quiet=True)
    assert len(other.said) == told, "once is enough"


def test_what_was_read_is_owed_until_the_lane_takes_it(lanes: LaneSet, stage: LaneStage) -> None:
    (lane,) = brought_up(stage, 1)
    (lane_reader,) = lanes
    lane_reader.take(frame_of(0, 0), Takes())
    lane.takes = False
    stage.say(CREDIT, changed=False, quiet=True)
    assert lane_reader.owed_bytes == lane_reader.read_bytes
    lane.takes = True
    stage.say(CREDIT, changed=False, quiet=True)
    assert not lane_reader.owed_bytes
    assert lane.said[-1].read_bytes == lane_reader.read_bytes


def test_while_more_comes_what_was_read_is_said_in_parts(lanes: LaneSet, stage: LaneStage) -> None:
    (lane,) = brought_up(stage, 1)
    (lane_reader,) = lanes
    frame = frame_of(0, 0)
    lanes.lane_bytes = 6 * len(frame)
    told = len(lane.said)
    for sequence in range(4):
        lane_reader.take(frame_of(0, sequence), Takes())
        stage.say(CREDIT, changed=False, quiet=False)
        assert len(lane.said) - told == (sequence + 1) // 2
    lane_reader.take(frame_of(0, 4), Takes())
    stage.say(CREDIT, changed=False, quiet=True)
    assert lane.said[-1].read_bytes == lane_reader.read_bytes, "all of it when nothing more comes"


@pytest.mark.parametrize("event", LOST)
def test_credit_is_said_again_on_the_lane_that_replaces_one(lanes: LaneSet, stage: LaneStage, event: LaneEvent) -> None:
    """It may have waited on a lane that never came up; then the daemon does not know it, and nobody is told of a loss."""
    stage.connect(PLACE, 1, 0)
    stage.say(CREDIT, changed=True, quiet=True)
    stage.lanes[0].events.append(event)
    assert not stage.watch(S)
    assert not stage.watch(2 * S)
    (new,) = stage.open
    assert new.said == [CREDIT]
    stage.renew(3 * S)
    (newer,) = stage.open
    assert newer.said == [CREDIT]


def test_another_thread_may_ask_how_many_are_up_while_lanes_are_replaced(
    stage: LaneStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought_up(stage, 3)
    turns = 0

    def changes_meanwhile(lane_reader: LaneReader) -> bool:
        nonlocal turns
        turns += 1
        stage.set._lane_readers[100 + turns] = (
            lane_reader  # as the receive thread does between two looks of the other one
        )
        return True

    monkeypatch.setattr(LaneReader, "up", property(changes_meanwhile))
    assert stage.set.up == 3
