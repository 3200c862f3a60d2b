"""What a daemon may send, and how a rank divides its room."""

import pytest

from emlio.errors import RemoteProtocolError
from emlio.receiver.placement.grants import Grants, Owed
from emlio.session.credits import LaneCredit, Place, StreamCredit
from emlio.wire.credit import Credit

RECORD = 10


class Plan:
    """Streams that take turns at places of ten bytes each; one of them may owe all."""

    def __init__(self, streams: int, only: int | None = None, slots: int | None = None) -> None:
        self.streams, self.only = streams, only
        self.last: Place | None = None if slots is None else (0, slots)

    def place_after(self, place: Place, size_bytes: int) -> Place:
        after = (place[0], place[1] + size_bytes // RECORD)
        return after if self.last is None else min(after, self.last)

    def owed(self, stream: int, begin: Place, end: Place) -> Owed:
        slots = range(begin[1], end[1])
        owner = [slot % self.streams if self.only is None else self.only for slot in slots]
        return Owed(records=owner.count(stream), size_bytes=owner.count(stream) * RECORD)


def test_a_lane_carries_up_to_its_limit_or_one_longer_message() -> None:
    lane = LaneCredit(100)
    assert lane.allows(1000)
    lane.sent(60)
    assert lane.allows(40)
    assert not lane.allows(41)
    lane.hear(60)
    assert lane.allows(1000)
    lane.hear(20)
    assert lane.under_way_bytes == 0, "what was said before comes late"
    with pytest.raises(RemoteProtocolError, match="60, got 61"):
        lane.hear(61)


def test_a_stream_goes_as_far_as_bytes_and_place_allow_and_further_for_what_is_needed() -> None:
    stream = StreamCredit(3)
    assert not stream.allows((0, 0), 1)
    assert stream.hear(Credit(read_bytes=0, stream=3, allowed_bytes=100, epoch=0, slot=50, must_epoch=0, must_slot=4))
    assert stream.allows((0, 49), 100)
    assert not stream.allows((0, 50), 1)
    assert not stream.allows((0, 49), 101)
    assert stream.allows((0, 3), 1000)
    stream.sent(90)
    assert not stream.allows((0, 10), 11)


def test_credit_that_comes_late_or_is_for_another_stream_changes_nothing() -> None:
    stream = StreamCredit(3)
    stream.hear(Credit(read_bytes=0, stream=3, allowed_bytes=100, epoch=1, slot=5))
    assert not stream.hear(Credit(read_bytes=0, stream=3, allowed_bytes=50, epoch=0, slot=90))
    assert not stream.hear(Credit(read_bytes=0, stream=2, allowed_bytes=5000, epoch=9))
    assert not stream.hear(Credit(read_bytes=0, stream=4, allowed_bytes=5000, epoch=9))
    assert stream.allows((1, 4), 100)
    assert not stream.allows((1, 5), 1)


@pytest.mark.parametrize("streams", [1, 3])
def test_all_of_the_room_is_given_and_goes_to_who_owes_what_comes_next(streams: int) -> None:
    grants, plan = Grants(900), Plan(streams)
    for stream in range(streams):
        grants.open(stream, (0, 0))
    grants.need((0, 4))
    grants.renew(plan, (0, 0))
    for stream in range(streams):
        allowed = grants.allowance(stream)
        assert (allowed.size_bytes, allowed.place, allowed.must) == (900 // streams, (0, 90), (0, 4))
    grants.came(0, 3, 30, 30)
    grants.need((0, 4))
    grants.renew(plan, (0, 0))
    assert grants.allowance(0).size_bytes == 900 // streams, "what is held takes the room that it was given"
    grants.handed_over(30)
    grants.need((0, 7))
    grants.renew(plan, (0, 3))
    assert sum(grants.allowance(stream).size_bytes for stream in range(streams)) == 930


def test_a_stream_that_owes_nothing_soon_gets_nothing() -> None:
    grants = Grants(900)
    for stream in range(2):
        grants.open(stream, (0, 0))
    grants.need((0, 1))
    grants.renew(Plan(2, only=1), (0, 0))
    assert [grants.allowance(stream).size_bytes for stream in range(2)] == [0, 900]


def test_where_records_are_larger_than_was_known_room_is_given_again_as_it_becomes_free() -> None:
    grants, plan = Grants(100), Plan(1)
    grants.open(0, (0, 0))
    grants.need((0, 1))
    grants.renew(plan, (0, 0))
    grants.came(0, 4, 100, 100)
    grants.need((0, 1))
    grants.renew(plan, (0, 0))
    assert grants.allowance(0).size_bytes == 100
    grants.handed_over(50)
    grants.need((0, 3))
    grants.renew(plan, (0, 2))
    assert grants.allowance(0).size_bytes == 150


@pytest.mark.parametrize("streams", [1, 3])
def test_the_last_messages_come_before_the_user_waits_for_them_though_they_are_larger_than_was_known(
    streams: int,
) -> None:
    grants, plan = Grants(900), Plan(streams, slots=60)
    for stream in range(streams):
        grants.open(stream, (0, 0))
    grants.renew(plan, (0, 0))
    each = 600 // streams
    assert [grants.allowance(stream).size_bytes for stream in range(streams)] == [each + each // 8] * streams
    for stream in range(streams):
        grants.came(stream, 59 // streams, each - 10, each - 10)
    grants.handed_over(300)
    grants.renew(plan, (0, 30))
    assert all(grants.allowance(stream).size_bytes >= 2 * each - 10 for stream in range(streams)), (
        "as large as one that came"
    )
    assert sum(grants.allowance(stream).size_bytes - (each - 10) for stream in range(streams)) <= 900 - 300, (
        "the room is kept"
    )


def test_at_the_end_what_is_owed_goes_before_what_may_be_needed_besides() -> None:
    class Rest(Plan):
        def owed(self, stream: int, begin: Place, end: Place) -> Owed:
            return Owed(records=1, size_bytes=(0, 10, 700)[stream])

    grants = Grants(800, place_bytes=1)
    for stream in range(3):
        grants.open(stream, (0, 0))
        grants.came(stream, 1, 500, 0)
    grants.renew(Rest(3, slots=1), (0, 0))
    allowed = [grants.allowance(stream).size_bytes for stream in range(3)]
    assert allowed[0] == 0, "of records without bytes nothing is owed"
    assert allowed[1] > 510, "as large as one that came, if there is room"
    assert allowed[2] >= 500 + 700


def test_opened_again_a_streams_totals_count_from_nothing_and_closed_it_takes_no_room() -> None:
    grants, plan = Grants(100), Plan(2)
    for stream in range(2):
        grants.open(stream, (0, 0))
    grants.need((0, 1))
    grants.renew(plan, (0, 0))
    grants.came(0, 1, 10, 10)
    grants.open(0, (0, 2))
    grants.close(1)
    grants.need((0, 1))
    grants.renew(plan, (0, 0))
    assert grants.allowance(0).size_bytes == 40, "what it owes from there up to place 10"
    assert list(grants.streams()) == [0]


def test_what_is_needed_never_goes_back_and_is_the_same_for_all_streams() -> None:
    grants = Grants(100)
    for stream in range(2):
        grants.open(stream, (0, 0))
    for must, so_far in (((0, 4), (0, 4)), ((0, 2), (0, 4)), ((1, 0), (1, 0)), ((0, 99), (1, 0))):
        grants.need(must)
        assert [grants.allowance(stream).must for stream in range(2)] == [so_far] * 2
    grants.open(5, (1, 0))
    assert grants.allowance(5).must == (1, 0), "a stream that is opened later is told, too"
    assert grants.allowance(9).must == (0, 0), "one that is not open is told nothing"
    grants.clear()
    grants.open(0, (0, 0))
    assert grants.allowance(0).must == (0, 0)


def test_what_is_needed_may_be_sent_before_any_room_is_divided() -> None:
    grants, daemon = Grants(100), StreamCredit(1)
    grants.open(0, (0, 0))
    grants.need((0, 3))
    allowed = grants.allowance(0)
    assert (allowed.size_bytes, allowed.place) == (0, (0, 0))
    daemon.hear(Credit(read_bytes=0, stream=1, allowed_bytes=0, must_epoch=allowed.must[0], must_slot=allowed.must[1]))
    assert [daemon.allows((0, slot), 1 << 40) for slot in (0, 2, 3)] == [True, True, False]


def test_a_stream_waits_once_nearly_all_that_it_may_send_has_come() -> None:
    grants, plan = Grants(800), Plan(2)
    assert not grants.waits(0), "it is not open"
    for stream in range(2):
        grants.open(stream, (0, 0))
    assert grants.waits(0), "it may send nothing"
    grants.renew(plan, (0, 0))
    assert [grants.allowance(stream).size_bytes for stream in range(2)] == [400, 400]
    assert not grants.waits(0)
    for _ in range(34):
        grants.came(0, 1, RECORD, RECORD)
    assert not grants.waits(0), "sixty bytes of its share of four hundred are under way"
    grants.came(0, 1, 10, 10)
    assert grants.waits(0)
    assert not grants.waits(1)
    grants.handed_over(350)
    grants.renew(plan, (0, 70))
    assert not grants.waits(0)


def test_a_bound_that_shrinks_takes_nothing_back_and_gives_nothing_until_enough_is_free() -> None:
    grants, plan = Grants(900), Plan(1)
    grants.open(0, (0, 0))
    grants.renew(plan, (0, 0))
    grants.came(0, 30, 300, 300)
    grants.limit_bytes = 100
    grants.renew(plan, (0, 0))
    assert grants.allowance(0).size_bytes == 900
    grants.came(0, 60, 600, 600)
    grants.handed_over(850)
    grants.renew(plan, (0, 90))
    assert grants.allowance(0).size_bytes == 950


def test_no_stream_goes_beyond_the_place_that_is_the_most() -> None:
    grants = Grants(900)
    grants.open(0, (0, 0))
    grants.renew(Plan(1), (0, 0), most=(0, 7))
    allowed = grants.allowance(0)
    assert (allowed.place, allowed.size_bytes) == ((0, 7), 70)
    grants.renew(Plan(1), (0, 0))
    assert grants.allowance(0).place == (0, 90)


def test_a_stream_whose_next_message_does_not_fit_its_credit_waits() -> None:
    grants = Grants(100)
    for stream in range(2):
        grants.open(stream, (0, 0))
    grants.renew(Plan(2), (0, 0))
    grants.came(0, 3, 30, 30)
    assert grants.allowance(0).size_bytes - 30 == 20, "too little for another message of thirty bytes"
    assert grants.waits(0)
    assert not grants.waits(1), "all of its share may still come"
