"""Asking for the sizes of records: when it is allowed, how many questions are on the way, and answers that do not fit."""

import pytest

from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.session.instructions import Failed, LookUpSizes, RankInstruction, Send, SizesCame
from emlio.session.rank import RankSession
from emlio.session.states import DaemonState, RankState
from emlio.wire.control import ControlMessage, Open, Pong, SizesReply, SizesRequest
from emlio.wire.limits import RECORDS_PER_SIZES
from emlio_testing.session_pair import example_wanted
from emlio_testing.session_states import daemon_in, rank_in

_S = 1_000_000_000
_WITHOUT_SESSION = (RankState.NEW, RankState.GREETING, RankState.OVER)
_WITH_SESSION = [state for state in RankState if state not in _WITHOUT_SESSION]


def _question(first: int, count: int = 1) -> SizesRequest:
    return SizesRequest(session=7, shard="a", first=first, count=count)


def _reply(first: int, records: int = 1) -> SizesReply:
    return SizesReply(shard="a", first=first, offset=20 * first, sizes=b"\x14\0\0\0" * records)


def _came(first: int, records: int = 1) -> SizesCame:
    return SizesCame(shard="a", first=first, offset=20 * first, sizes=b"\x14\0\0\0" * records)


def _sent(instructions: list[RankInstruction]) -> list[ControlMessage]:
    return [instruction.message for instruction in instructions if isinstance(instruction, Send)]


def _blame(rank: RankSession, reply: SizesReply) -> str:
    """What a rank says of a reply for which it gives the daemon up."""
    failed = rank.receive(reply, 0)[-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, RemoteProtocolError)
    assert rank.state is RankState.OVER
    return str(failed.error)


@pytest.mark.parametrize("state", _WITH_SESSION)
def test_sizes_can_be_asked_for_in_every_state_of_a_session_and_change_none(state: RankState) -> None:
    rank = rank_in(state)
    assert rank.ask_sizes("a", 3, 2) == [Send(message=_question(3, 2))]
    assert rank.state is state
    assert rank.receive(_reply(3, 2), 0) == [_came(3, 2)]
    assert rank.state is state


@pytest.mark.parametrize("state", _WITHOUT_SESSION)
def test_without_a_session_nobody_can_be_asked(state: RankState) -> None:
    rank = rank_in(state)
    with pytest.raises(LocalProtocolError, match=f"'asksizes' is not allowed in state '{state.value}'"):
        rank.ask_sizes("a", 0, 1)
    assert rank.state is state


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (0, 0), (0, -5)])
def test_a_question_for_no_records_is_a_defect_of_this_side(first: int, count: int) -> None:
    rank = rank_in(RankState.READY)
    with pytest.raises(LocalProtocolError, match=f"got {count} from record {first} of a"):
        rank.ask_sizes("a", first, count)
    assert rank.ask_sizes("a", 0, 1) == [Send(message=_question(0))]


@pytest.mark.parametrize("state", [state for state in DaemonState if state is not DaemonState.OVER])
def test_a_daemon_looks_sizes_up_in_every_state_and_stays_in_it(state: DaemonState) -> None:
    daemon = daemon_in(state)
    assert daemon.receive(_question(3, 2), 0) == [LookUpSizes(shard="a", first=3, count=2)]
    assert daemon.state is state


def test_a_daemon_whose_session_is_over_looks_nothing_up() -> None:
    assert daemon_in(DaemonState.OVER).receive(_question(3), 0) == []


def test_a_question_shows_the_daemon_that_the_rank_lives() -> None:
    daemon = daemon_in(DaemonState.STREAMING)
    daemon.receive(_question(0), 4 * _S)
    assert daemon.tick(8 * _S) == []
    assert daemon.deadline_ns() == 9 * _S


@pytest.mark.parametrize("state", [state for state in RankState if state not in (RankState.NEW, RankState.OVER)])
def test_sizes_nobody_asked_for_are_the_daemons_fault(state: RankState) -> None:
    assert "from record 3 of 'a' without a request" in _blame(rank_in(state), _reply(3))


def test_sizes_that_come_twice_are_the_daemons_fault() -> None:
    rank = rank_in(RankState.STREAMING)
    rank.ask_sizes("a", 3, 1)
    rank.receive(_reply(3), 0)
    assert "without a request" in _blame(rank, _reply(3))


@pytest.mark.parametrize(
    "reply",
    [
        SizesReply(shard="b", first=3, offset=0, sizes=bytes(4)),
        SizesReply(shard="a", first=4, offset=0, sizes=bytes(4)),
    ],
    ids=["shard", "record"],
)
def test_sizes_of_others_than_asked_for_are_the_daemons_fault(reply: SizesReply) -> None:
    rank = rank_in(RankState.STREAMING)
    rank.ask_sizes("a", 3, 1)
    assert "without a request" in _blame(rank, reply)


@pytest.mark.parametrize("size_bytes", [1, 7, 12])
def test_sizes_of_too_many_records_or_of_half_a_one_are_the_daemons_fault(size_bytes: int) -> None:
    rank = rank_in(RankState.STREAMING)
    rank.ask_sizes("a", 3, 2)
    reply = SizesReply(shard="a", first=3, offset=60, sizes=bytes(size_bytes))
    assert f"must have 4 bytes each and at most 8 bytes, got {size_bytes}" in _blame(rank, reply)


def test_an_answer_may_end_before_the_records_asked_for() -> None:
    rank = rank_in(RankState.STREAMING)
    rank.ask_sizes("a", 0, 2 * RECORDS_PER_SIZES)
    assert rank.receive(_reply(0, RECORDS_PER_SIZES), 0) == [_came(0, RECORDS_PER_SIZES)]
    rank.ask_sizes("a", 10**6, 5)
    empty = SizesReply(shard="a", first=10**6, offset=0, sizes=b"")
    assert rank.receive(empty, 0) == [SizesCame(shard="a", first=10**6, offset=0, sizes=b"")]


def test_the_same_question_may_be_open_twice_and_is_answered_twice() -> None:
    rank = rank_in(RankState.STREAMING)
    rank.ask_sizes("a", 3, 1)
    rank.ask_sizes("a", 3, 2)
    assert rank.receive(_reply(3, 1), 0) == [_came(3, 1)]
    assert rank.receive(_reply(3, 2), 0) == [_came(3, 2)]


def test_sixteen_questions_are_on_the_way_and_the_others_follow_one_for_each_answer() -> None:
    rank = rank_in(RankState.STREAMING)
    sent = [message for first in range(20) for message in _sent(rank.ask_sizes("a", first, 1))]
    assert sent == [_question(first) for first in range(16)]
    for first in range(4):
        assert rank.receive(_reply(first), 0) == [_came(first), Send(message=_question(16 + first))]
    for first in range(4, 20):
        assert rank.receive(_reply(first), 0) == [_came(first)]


def test_a_daemon_that_speaks_is_not_given_up_for_sizes_that_do_not_come() -> None:
    rank = rank_in(RankState.STREAMING)
    rank.ask_sizes("a", 0, 1)
    for second in range(1, 60):
        rank.receive(Pong(nonce=10**9), second * _S)
        assert all(isinstance(instruction, Send) for instruction in rank.tick(second * _S))
    assert rank.state is RankState.STREAMING
    assert rank.receive(_reply(0), 60 * _S) == [_came(0)]


def test_sizes_neither_answer_nor_prolong_another_question() -> None:
    rank = rank_in(RankState.READY)
    order = rank.open(example_wanted(), now_ns=0)
    assert isinstance(_sent(order)[0], Open)
    rank.ask_sizes("a", 0, 1)
    for second in range(1, 9):
        rank.tick(second * _S)
    rank.receive(_reply(0), 9 * _S)
    failed = rank.tick(10 * _S)[-1]
    assert isinstance(failed, Failed)
    assert "must answer within 10 s" in str(failed.error)
