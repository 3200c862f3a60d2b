"""Asking for single records: when it is allowed, how many requests are open, and answers that do not fit."""

from typing import Any

import pytest

from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.session.instructions import Failed, LookUpRecords, RecordsCame, Send
from emlio.session.rank import RankSession
from emlio.session.states import DaemonState, RankState
from emlio.wire.control import RecordRow, RecordsReply, RecordsRequest, Refused
from emlio.wire.limits import MOST_RECORD_REQUESTS, RECORDS_PER_REQUEST
from emlio_testing.session_states import daemon_in, rank_in

_WITHOUT_SESSION = (RankState.NEW, RankState.GREETING, RankState.OVER)
_WITH_SESSION = [state for state in RankState if state not in _WITHOUT_SESSION]
_ROWS = [RecordRow("a", 3), RecordRow("b", 0)]


def _question(number: int = 1, offset: int = 0, rows: list[RecordRow] = _ROWS) -> RecordsRequest:
    return RecordsRequest(session=7, number=number, records=rows, offset=offset)


def _reply(*sizes: int, payload_bytes: int | None = None, **fields: Any) -> RecordsReply:
    packed = b"".join(size.to_bytes(4, "little") for size in sizes)
    payload = bytes(sum(sizes) if payload_bytes is None else payload_bytes)
    known: dict[str, Any] = {"number": 1, "sizes": packed, "payload": payload}
    return RecordsReply(**(known | fields))


def _blame(rank: RankSession, reply: RecordsReply) -> str:
    failed = rank.receive(reply, 0)[-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, RemoteProtocolError)
    assert rank.state is RankState.OVER
    return str(failed.error)


@pytest.mark.parametrize("state", _WITH_SESSION)
def test_records_can_be_asked_for_in_every_state_of_a_session_and_change_none(state: RankState) -> None:
    rank = rank_in(state)
    assert rank.takes_records
    assert rank.ask_records(1, _ROWS) == [Send(message=_question())]
    reply = _reply(5, 9, crcs=bytes(8))
    assert rank.receive(reply, 0) == [RecordsCame(reply=reply)]
    assert rank.state is state


@pytest.mark.parametrize("state", _WITHOUT_SESSION)
def test_without_a_session_no_records_can_be_asked_for(state: RankState) -> None:
    rank = rank_in(state)
    assert not rank.takes_records
    with pytest.raises(LocalProtocolError, match="'askrecords' is not allowed"):
        rank.ask_records(1, _ROWS)


@pytest.mark.parametrize(
    ("count", "offset"), [(0, 0), (RECORDS_PER_REQUEST + 1, 0), (2, 1), (1, -1)], ids=["none", "many", "rest", "below"]
)
def test_a_request_that_is_not_valid_is_a_defect_of_this_side(count: int, offset: int) -> None:
    with pytest.raises(LocalProtocolError, match=f"got {count} records from byte {offset}"):
        rank_in(RankState.READY).ask_records(1, [RecordRow("a", 0)] * count, offset)


def test_few_requests_are_open_each_with_its_own_number() -> None:
    rank = rank_in(RankState.STREAMING)
    rank.ask_records(1, _ROWS)
    with pytest.raises(LocalProtocolError, match="got number 1 beside"):
        rank.ask_records(1, _ROWS)
    for number in range(2, MOST_RECORD_REQUESTS + 1):
        rank.ask_records(number, _ROWS)
    assert not rank.takes_records
    with pytest.raises(LocalProtocolError, match="at most"):
        rank.ask_records(99, _ROWS)
    rank.receive(_reply(1, number=2), 0)
    assert rank.takes_records


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (_reply(1, number=2), "answer to request 2, which is not open"),
        (_reply(), "sizes of 4 bytes each for 1 record or more"),
        (_reply(1, 1, 1), "for 1 record or more, and no others, got 12 bytes"),
        (_reply(1, sizes=bytes(3)), "got 3 bytes"),
        (_reply(1, 1, crcs=bytes(4)), "as many checksums as sizes"),
        (_reply(5, 9, payload_bytes=13), "hold its 2 records of 14 bytes, got 13"),
        (_reply(5, payload_bytes=6), "hold 1 to 5 bytes of the rest of its record, got 6"),
        (_reply(5, payload_bytes=0), "got 0"),
        (_reply(5, text="no", code="dataset"), "hold no records beside an error"),
    ],
    ids=["number", "none", "more", "third", "crcs", "short", "long", "nothing", "error"],
)
def test_an_answer_that_does_not_fit_is_the_daemons_fault(reply: RecordsReply, words: str) -> None:
    rank = rank_in(RankState.STREAMING)
    rank.ask_records(1, _ROWS)
    assert words in _blame(rank, reply)


def test_a_long_record_comes_in_parts() -> None:
    rank = rank_in(RankState.READY)
    for offset, part in ((0, 4), (4, 5), (9, 1)):
        rank.ask_records(1, _ROWS[:1], offset)
        reply = _reply(10, payload_bytes=part)
        assert rank.receive(reply, 0) == [RecordsCame(reply=reply)]
    rank.ask_records(1, _ROWS[:1], 9)
    assert "hold 1 to 1 bytes" in _blame(rank, _reply(10, payload_bytes=2))


def test_an_empty_record_and_an_error_are_answers() -> None:
    for reply in (_reply(0), RecordsReply(number=1, code="dataset", text="gone")):
        rank = rank_in(RankState.READY)
        rank.ask_records(1, _ROWS)
        assert rank.receive(reply, 0) == [RecordsCame(reply=reply)]


@pytest.mark.parametrize("state", [state for state in DaemonState if state is not DaemonState.OVER])
def test_a_daemon_looks_records_up_in_every_state_and_answers_each_request_once(state: DaemonState) -> None:
    daemon = daemon_in(state)
    assert daemon.receive(_question(), 0) == [LookUpRecords(question=_question())]
    assert daemon.state is state
    assert daemon.tell_records(_reply(5)) == [Send(message=_reply(5))]
    assert daemon.tell_records(_reply(5)) == []


@pytest.mark.parametrize(
    "wrong", [_question(1), _question(9, offset=5), _question(9)], ids=["number again", "rest of two", "too many"]
)
def test_a_daemon_refuses_requests_beyond_the_rules(wrong: RecordsRequest) -> None:
    daemon = daemon_in(DaemonState.STREAMING)
    for number in range(1, MOST_RECORD_REQUESTS + (wrong == _question(9))):
        daemon.receive(_question(number), 0)
    said = daemon.receive(wrong, 0)[0]
    assert isinstance(said, Send)
    assert isinstance(said.message, Refused)
    assert said.message.code == "protocol"
    assert daemon.state is DaemonState.OVER
    assert daemon.tell_records(_reply(5)) == []
