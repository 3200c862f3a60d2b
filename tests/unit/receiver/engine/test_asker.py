"""Asking daemons: how much at once, again where a daemon is lost, other daemons for records that one cannot read."""

from typing import Any, cast

import pytest

from emlio.errors import DatasetError, EmlioError, PeerLostError, RemoteProtocolError
from emlio.receiver.engine.questions import SizeQuestion
from emlio.receiver.engine.record_questions import SoughtRecord, record_questions
from emlio.receiver.threads.promise import Promise
from emlio.wire.limits import MOST_QUESTIONS, RECORDS_PER_REQUEST
from emlio.wire.questions import Absent, Answer, AskRecords, AskSizes, RecordRow, Records, Sizes
from emlio_testing.asked_daemons import AskedDaemons

_GONE = Absent(code="dataset", text="cannot be read")


class _Pool(AskedDaemons):
    def sizes(self, first: int) -> Promise:
        question = SizeQuestion(self.pool, 0, AskSizes(shard="0", first=first, count=1))
        return self.ask([question], lambda: question.found)

    def records(self, *records: tuple[int, int]) -> tuple[list[SoughtRecord], Promise]:
        sought = [SoughtRecord(shard=shard, name=str(shard), record=record) for shard, record in records]
        return sought, self.ask(record_questions(self.pool, sought))


def _told(*records: bytes, sizes: tuple[int, ...] = (), **fields: Any) -> Records:
    sizes = sizes or tuple(map(len, records))
    packed = b"".join(size.to_bytes(4, "little") for size in sizes)
    return Records(sizes=packed, payload=b"".join(records), **fields)


def _ask(*records: tuple[int, int], offset: int = 0) -> AskRecords:
    return AskRecords(records=[RecordRow(str(shard), record) for shard, record in records], offset=offset)


def test_a_daemon_is_asked_a_few_questions_at_once_in_order() -> None:
    pool = _Pool()
    answers = [pool.sizes(first) for first in range(40)]
    assert len(pool.sent) == MOST_QUESTIONS - 1
    for number in range(40):
        pool.answer(Sizes(offset=number, sizes=bytes(4)), number)
        assert len(pool.sent) == min(MOST_QUESTIONS + number, 40)
    assert [answer.result(0).offset for answer in answers] == list(range(40))
    assert [cast("AskSizes", about).first for _, about in pool.asked()] == list(range(40))


def test_what_a_lost_daemon_was_asked_is_asked_again_when_it_is_back() -> None:
    pool = _Pool()
    answer = pool.sizes(3)
    before = pool.sources.all[0].conversation
    pool.sources.all[0].lost()
    pool.asker.tick()
    assert len(pool.sent) == 1
    pool.sources.all[0].come_back()
    pool.asker.tick()
    assert [question.session for _, question in pool.sent] == [7, 8]
    late = before.receive(Answer(number=0, told=Sizes(offset=1, sizes=b"")), 0)
    pool.carry_out(pool.sources.all[0], late)
    assert not answer.done(), "the answer belongs to the session before"
    pool.answer(Sizes(offset=5, sizes=bytes(4)))
    assert answer.result(0).offset == 5


def test_records_are_asked_of_their_daemons_many_in_one_question() -> None:
    pool = _Pool(2)
    sought, answer = pool.records((1, 5), (0, 1), (2, 9), (1, 6))
    assert pool.asked() == [(1, _ask((1, 5), (1, 6))), (0, _ask((0, 1)))]
    assert [one.here for one in sought] == [False, False, True, False]
    pool.answer(_told(b"abc"))
    assert not answer.done()
    pool.answer(_told(b"de", b"f", crcs=bytes(8)), 0)
    assert answer.result(0) is None
    assert [bytes(one.data) for one in sought] == [b"de", b"abc", b"", b"f"]
    assert [one.crc for one in sought] == [0, None, None, 0]


def test_more_records_than_one_question_may_have_take_several_at_once() -> None:
    pool = _Pool()
    _, answer = pool.records(*((0, record) for record in range(2 * RECORDS_PER_REQUEST + 1)))
    assert [len(cast("AskRecords", about).records) for _, about in pool.asked()] == [64, 64, 1]
    for at in range(3):
        assert not answer.done()
        pool.answer(_told(*[b"x"] * len(cast("AskRecords", pool.asked()[at][1]).records)), at)
    assert answer.result(0) is None


def test_records_on_this_host_need_no_question() -> None:
    pool = _Pool()
    (one,), answer = pool.records((1, 0))
    assert (one.here, pool.sent, answer.result(0)) == (True, [], None)


def test_what_an_answer_has_no_room_for_is_asked_next_and_a_long_record_in_parts() -> None:
    pool = _Pool()
    (first, long), answer = pool.records((0, 1), (0, 2))
    pool.answer(_told(b"abc"))
    assert pool.asked()[-1] == (0, _ask((0, 2)))
    pool.answer(_told(b"de", sizes=(5,)))
    assert pool.asked()[-1] == (0, _ask((0, 2), offset=2))
    pool.answer(_told(b"fgh", sizes=(5,)))
    assert answer.result(0) is None
    assert (bytes(first.data), bytes(long.data)) == (b"abc", b"defgh")


def test_a_long_record_begins_anew_where_its_daemon_is_lost() -> None:
    pool = _Pool()
    (long,), answer = pool.records((0, 2))
    pool.answer(_told(b"de", sizes=(5,)))
    pool.sources.all[0].lost()
    pool.asker.tick()
    pool.sources.all[0].come_back()
    pool.asker.tick()
    assert pool.asked()[-1] == (0, _ask((0, 2)))
    pool.answer(_told(b"defgh"))
    assert answer.result(0) is None
    assert bytes(long.data) == b"defgh"


def test_a_record_that_a_daemon_cannot_read_is_asked_of_another_and_the_next_one_of_its_owner() -> None:
    pool = _Pool(2)
    (bad, good), answer = pool.records((0, 1), (0, 2))
    pool.answer(_GONE)
    assert pool.asked()[-1] == (1, _ask((0, 1), (0, 2)))
    pool.answer(_told(b"abc"))
    assert pool.asked()[-1] == (0, _ask((0, 2)))
    pool.answer(_told(b"de"))
    assert answer.result(0) is None
    assert (bytes(bad.data), bytes(good.data)) == (b"abc", b"de")


def test_a_record_that_no_daemon_can_read_is_the_error_of_all() -> None:
    pool = _Pool(2)
    _, answer = pool.records((0, 1), (1, 2))
    pool.answer(_GONE, 0)
    pool.answer(_GONE)
    with pytest.raises(DatasetError, match="cannot be read"):
        answer.result(0)
    sent = len(pool.sent)
    pool.answer(_told(b"abc"), 1)  # is for nobody any more
    pool.asker.tick()
    assert len(pool.sent) == sent


def test_notes_that_make_no_sense_are_the_error_of_this_question_alone() -> None:
    pool = _Pool()
    _, answer = pool.records((0, 1))
    other = pool.sizes(0)
    pool.answer(_told(b"abc", notes=b"\xff" * 3), 0)
    with pytest.raises(RemoteProtocolError):
        answer.result(0)
    pool.answer(Sizes(offset=1, sizes=bytes(4)))
    assert other.result(0).offset == 1


def test_what_is_wanted_no_longer_is_not_asked_again() -> None:
    pool = _Pool()
    _, answer = pool.records((0, 1), (0, 2))
    answer.cancel()
    pool.answer(_told(b"abc"))
    assert len(pool.sent) == 1


@pytest.mark.parametrize("error", [None, DatasetError("why")])
def test_once_no_daemon_can_be_asked_all_questions_end(error: EmlioError | None) -> None:
    pool = _Pool()
    sizes, (_, records) = pool.sizes(0), pool.records((0, 1))
    waiting = [pool.sizes(first) for first in range(40)]
    pool.asker.end(error)
    assert not sizes.result(0).sizes.size
    assert not any(answer.result(0).sizes.size for answer in waiting)
    expected, words = (PeerLostError, "has ended") if error is None else (DatasetError, "why")
    with pytest.raises(expected, match=words):
        records.result(0)
    assert not pool.sizes(1).result(0).sizes.size
    with pytest.raises(expected, match=words):
        pool.records((0, 1))[1].result(0)
