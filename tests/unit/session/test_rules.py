"""Each side alone: messages that break the rules end the session, with the blame at the right side."""

from typing import Any

import msgspec
import pytest

from emlio.errors import (
    CorruptRecordError,
    DatasetError,
    EmlioError,
    LocalProtocolError,
    PeerLostError,
    RefusedError,
    RemoteProtocolError,
)
from emlio.session.instructions import (
    Agreed,
    DaemonInstruction,
    Failed,
    Judge,
    Listed,
    RankInstruction,
    Send,
    StopStream,
    StreamOpened,
)
from emlio.session.rank import PeerReport, RankSession
from emlio.session.states import DaemonState, RankState
from emlio.wire.control import (
    CatalogPart,
    ControlMessage,
    Fault,
    Goodbye,
    Opened,
    Ping,
    PlanReply,
    Pong,
    Refused,
    ShardRow,
    ShardsReply,
    ShardsRequest,
    Stop,
)
from emlio.wire.questions import Answer, AskSizes, Question, Sizes
from emlio_testing.session_pair import example_hello, example_offer, example_rows, example_wanted
from emlio_testing.session_states import daemon_in, example_open, example_welcome, failure, rank_in, refusal

_ROWS = example_rows(5)
_OPEN = example_open()
_ASK = Question(session=7, number=1, about=AskSizes(shard="a", first=0, count=1))
_SIZES = Answer(number=1, told=Sizes(offset=0, sizes=bytes(4)))


def _failure(instructions: list[RankInstruction]) -> EmlioError:
    """The error of a session that failed, which also says goodbye."""
    assert instructions[:-1] == [Send(message=Goodbye(session=7))]
    return failure(instructions)


def _refusal(instructions: list[DaemonInstruction]) -> str:
    """Why a daemon ended a session that broke the rules."""
    refused = refusal(instructions)
    assert refused.code == "protocol"
    return refused.text


@pytest.mark.parametrize("state", list(RankState))
def test_each_state_of_the_rank_can_be_reached(state: RankState) -> None:
    assert rank_in(state).state is state


@pytest.mark.parametrize("state", list(DaemonState))
def test_each_state_of_the_daemon_can_be_reached(state: DaemonState) -> None:
    assert daemon_in(state).state is state


@pytest.mark.parametrize("state", [state for state in RankState if state not in (RankState.NEW, RankState.OVER)])
@pytest.mark.parametrize(
    ("message", "allowed_in"),
    [
        (example_welcome(), RankState.GREETING),
        (ShardsReply(first=0, total=5, rows=list(_ROWS)), RankState.LISTING),
        (PlanReply(need_catalog=False), RankState.OFFERING),
        (Opened(stream=1, lanes=1), RankState.OPENING),
    ],
)
def test_an_answer_nobody_asked_for_is_the_daemons_fault(
    state: RankState, message: ControlMessage, allowed_in: RankState
) -> None:
    rank = rank_in(state)
    instructions = rank.receive(message, 0)
    if state is allowed_in:
        assert rank.state is not RankState.OVER
        return
    error = failure(instructions)
    assert isinstance(error, RemoteProtocolError)
    assert f"not allowed in state '{state.value}'" in str(error)
    assert rank.state is RankState.OVER


@pytest.mark.parametrize("state", [RankState.NEW, RankState.OVER])
def test_a_session_that_is_not_says_and_hears_nothing(state: RankState) -> None:
    rank = rank_in(state)
    assert rank.receive(Refused(code="x", text="x"), 10**12) == []
    assert rank.tick(10**12) == []
    assert rank.deadline_ns() is None
    assert rank.state is state


@pytest.mark.parametrize("message", [_OPEN, Ping(session=7, nonce=1), ShardsRequest(session=7, first=0), _ASK])
def test_a_daemon_must_not_speak_as_a_rank(message: ControlMessage) -> None:
    error = _failure(rank_in(RankState.STREAMING).receive(message, 0))
    assert str(error) == f"a daemon must not send {type(message).__name__}"


@pytest.mark.parametrize(
    "message", [example_welcome(), Pong(nonce=1), Opened(stream=1, lanes=1), _SIZES, example_hello()]
)
def test_a_rank_must_not_speak_as_a_daemon_nor_say_hello_twice(message: ControlMessage) -> None:
    daemon = daemon_in(DaemonState.STREAMING)
    assert _refusal(daemon.receive(message, 0)) == f"a rank must not send {type(message).__name__}"
    assert daemon.state is DaemonState.OVER
    assert daemon.receive(Ping(session=7, nonce=1), 0) == []


@pytest.mark.parametrize("state", [state for state in DaemonState if state is not DaemonState.OVER])
@pytest.mark.parametrize(
    ("message", "allowed_in"),
    [
        (ShardsRequest(session=7, first=0), {DaemonState.GREETED}),
        (example_offer(7), {DaemonState.GREETED, DaemonState.AGREED}),
        (CatalogPart(session=7, fingerprint="f" * 32, first=0, total=5, rows=list(_ROWS)), {DaemonState.COLLECTING}),
        (msgspec.structs.replace(_OPEN, stream=2), {DaemonState.AGREED, DaemonState.STREAMING}),
    ],
)
def test_what_a_rank_asks_too_early_or_too_late_is_refused(
    state: DaemonState, message: ControlMessage, allowed_in: set[DaemonState]
) -> None:
    daemon = daemon_in(state)
    instructions = daemon.receive(message, 0)
    if state in allowed_in:
        assert daemon.state is not DaemonState.OVER
    else:
        assert f"not allowed in state '{state.value}'" in _refusal(instructions)


@pytest.mark.parametrize(
    ("state", "call"),
    [
        (RankState.NEW, "offer"),
        (RankState.NEW, "open"),
        (RankState.GREETING, "greet"),
        (RankState.LISTED, "open"),
        (RankState.READY, "offer"),
        (RankState.OVER, "open"),
    ],
)
def test_asking_out_of_turn_is_a_defect_of_this_side(state: RankState, call: str) -> None:
    rank = rank_in(state)
    with pytest.raises(LocalProtocolError, match=f"'{call}' is not allowed in state '{state.value}'"):
        _ask(rank, call)
    assert rank.state is state


def _ask(rank: RankSession, call: str) -> None:
    if call == "greet":
        rank.greet(example_hello(), 0)
    elif call == "offer":
        rank.offer(example_offer(7), _ROWS, 0)
    else:
        rank.open(example_wanted(), now_ns=0)


def test_the_shell_may_agree_only_to_what_it_judges() -> None:
    with pytest.raises(LocalProtocolError, match="'agree' is not allowed in state 'greeted'"):
        daemon_in(DaemonState.GREETED).agree()
    with pytest.raises(LocalProtocolError, match="'needcatalog' is not allowed in state 'streaming'"):
        daemon_in(DaemonState.STREAMING).ask_catalog()


# ---- lists of shards ----------------------------------------------------------------------------------------------


def _shards(first: int, total: int, count: int) -> ShardsReply:
    return ShardsReply(first=first, total=total, rows=list(_ROWS[:count]))


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (_shards(1, 5, 2), "must continue at row 0 with at least one row, got row 1 with 2"),
        (_shards(0, 5, 0), "must continue at row 0 with at least one row, got row 0 with 0"),
        (_shards(0, 4, 5), "must have the 5 rows announced in the welcome, got a total of 4"),
    ],
)
def test_a_list_of_shards_that_does_not_go_on_is_the_daemons_fault(reply: ShardsReply, what: str) -> None:
    error = _failure(rank_in(RankState.LISTING).receive(reply, 0))
    assert isinstance(error, RemoteProtocolError)
    assert what in str(error)


def test_a_list_that_goes_on_is_asked_for_from_where_it_ended() -> None:
    rank = rank_in(RankState.LISTING)
    assert rank.receive(ShardsReply(first=0, total=5, rows=list(_ROWS[:2])), 0) == [
        Send(message=ShardsRequest(session=7, first=2))
    ]
    assert rank.receive(ShardsReply(first=2, total=5, rows=list(_ROWS[2:])), 0) == [
        Listed(rows=_ROWS, missing=("train-000009",))
    ]


def test_a_list_whose_length_changes_on_the_way_is_the_daemons_fault() -> None:
    rank = rank_in(RankState.LISTING)
    rank.receive(ShardsReply(first=0, total=5, rows=list(_ROWS[:2])), 0)
    error = _failure(rank.receive(ShardsReply(first=2, total=6, rows=list(_ROWS[2:])), 0))
    assert "must have the 5 rows announced in the welcome, got a total of 6" in str(error)


def test_rows_beyond_the_list_cannot_be_asked_for() -> None:
    text = _refusal(daemon_in(DaemonState.GREETED).receive(ShardsRequest(session=7, first=5), 0))
    assert "must be in [0, 5), got 5" in text


def _part(first: int, rows: tuple[ShardRow, ...], **changes: Any) -> CatalogPart:
    fields: dict[str, Any] = {"session": 7, "fingerprint": "f" * 32, "first": first, "total": 5, "rows": list(rows)}
    return CatalogPart(**(fields | changes))


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ([_part(2, _ROWS[2:])], "must continue at row 0 of 5, got row 2 with 3 rows"),
        ([_part(0, _ROWS[:2]), _part(0, _ROWS[:2])], "must continue at row 2 of 5, got row 0 with 2 rows"),
        ([_part(0, ())], "must continue at row 0 of 5, got row 0 with 0 rows"),
        ([_part(0, _ROWS[:3]), _part(3, _ROWS[2:])], "must continue at row 3 of 5, got row 3 with 3 rows"),
        ([_part(0, _ROWS, fingerprint="e" * 32)], "must have the fingerprint of the offered plan"),
        (
            [_part(0, _ROWS[:2]), _part(2, _ROWS[2:], fingerprint="e" * 32)],
            "must have the fingerprint of the offered plan",
        ),
        ([_part(0, _ROWS[:2]), _part(2, _ROWS[2:4], total=4)], "total must be 5 in all its parts, got 4"),
    ],
)
def test_a_catalog_whose_parts_do_not_fit_is_refused(parts: list[CatalogPart], what: str) -> None:
    daemon = daemon_in(DaemonState.COLLECTING)
    for part in parts[:-1]:
        assert daemon.receive(part, 0) == []
    assert what in _refusal(daemon.receive(parts[-1], 0))


def test_a_catalog_in_parts_is_judged_when_the_last_has_come() -> None:
    daemon = daemon_in(DaemonState.COLLECTING)
    assert daemon.receive(_part(0, _ROWS[:4]), 0) == []
    assert daemon.receive(_part(4, _ROWS[4:]), 0) == [Judge(offer=example_offer(7), rows=_ROWS)]
    assert daemon.agree() == [Send(message=PlanReply(need_catalog=False))]


def test_a_catalog_is_sent_once_even_if_asked_for_again() -> None:
    rank = rank_in(RankState.OFFERING)
    parts = rank.receive(PlanReply(need_catalog=True), 0)
    assert parts == [Send(message=_part(0, _ROWS))]
    assert rank.receive(PlanReply(need_catalog=False), 0) == [Agreed()]


# ---- what ends a session ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(stream=1, code="corrupt-record", text="t", shard="a", record=3, offset=99), CorruptRecordError),
        (Fault(stream=1, code="dataset", text="t"), DatasetError),
        (Fault(stream=0, code="internal", text="t"), RefusedError),
    ],
)
def test_a_fault_becomes_the_error_it_is(fault: Fault, kind: type[EmlioError]) -> None:
    error = _failure(rank_in(RankState.STREAMING).receive(fault, 0))
    assert type(error) is kind
    assert str(error) == "the daemon at store1:5555 cannot continue: t"
    if isinstance(error, CorruptRecordError):
        assert (error.shard, error.record, error.offset) == ("a", 3, 99)
    if isinstance(error, RefusedError):
        assert error.code == "internal"


def test_a_fault_of_a_stream_that_was_replaced_is_ignored() -> None:
    rank = rank_in(RankState.STREAMING)
    rank.open(example_wanted(slot=5), now_ns=0)
    assert rank.receive(Fault(stream=1, code="dataset", text="t"), 0) == []
    assert rank.state is RankState.OPENING


@pytest.mark.parametrize("state", [state for state in RankState if state not in (RankState.NEW, RankState.OVER)])
def test_goodbye_and_refusal_end_the_session_in_every_state(state: RankState) -> None:
    rank = rank_in(state)
    error = failure(rank.receive(Goodbye(session=7, reason="maintenance"), 0))
    assert isinstance(error, PeerLostError)
    assert "maintenance" in str(error)
    other = rank_in(state)
    error = failure(other.receive(Refused(code="full", text="no room"), 0))
    assert isinstance(error, RefusedError)
    assert error.code == "full"
    assert (rank.state, other.state) == (RankState.OVER, RankState.OVER)


def test_a_pong_carries_the_report_and_one_that_was_never_asked_for_measures_nothing() -> None:
    rank = rank_in(RankState.STREAMING)
    rank.receive(Pong(nonce=999, sent_bytes=5, blocked_ns=6, starved_ns=7), 10**9)
    assert rank.report == PeerReport(sent_bytes=5, blocked_ns=6, starved_ns=7)
    assert rank.round_trip_ns == 0


def test_pings_without_answers_are_not_kept_for_ever() -> None:
    rank = rank_in(RankState.STREAMING)
    nonces: list[int] = []
    for second in range(1, 100):
        rank.receive(Pong(nonce=10**9), second * 10**9)  # it lives, but answers none of them
        for instruction in rank.tick(second * 10**9):
            assert isinstance(instruction, Send)
            assert isinstance(instruction.message, Ping)
            nonces.append(instruction.message.nonce)
    assert len(nonces) == 99
    before = rank.round_trip_ns
    rank.receive(Pong(nonce=nonces[0]), 100 * 10**9)
    assert rank.round_trip_ns == before


_S = 1_000_000_000


def test_a_rank_that_stood_still_itself_does_not_blame_the_daemon_but_asks_it() -> None:
    rank = rank_in(RankState.STREAMING)
    rank.tick(2 * _S)  # the next ping is due two seconds later
    instructions = rank.tick(60 * _S)
    assert [type(instruction.message) for instruction in instructions if isinstance(instruction, Send)] == [Ping]
    assert rank.state is RankState.STREAMING
    for second in range(61, 66):
        rank.tick(second * _S)
        assert rank.state is RankState.STREAMING
    failed = [instruction for second in range(66, 80) for instruction in rank.tick(second * _S)]
    assert isinstance(failed[-1], Failed)  # nothing came in ten seconds in which it could have


def test_a_question_asked_of_a_daemon_that_is_silent_already_gives_it_no_more_time() -> None:
    rank = rank_in(RankState.STREAMING)
    for second in range(1, 7):
        assert not any(isinstance(instruction, Failed) for instruction in rank.tick(second * _S))
    rank.open(example_wanted(slot=5), now_ns=6 * _S)
    told = [(second, told) for second in range(7, 12) for told in rank.tick(second * _S) if isinstance(told, Failed)]
    assert [second for second, _ in told] == [10]


@pytest.mark.parametrize("state", [state for state in RankState if state not in (RankState.NEW, RankState.OVER)])
def test_a_connection_that_ends_ends_the_session_at_once(state: RankState) -> None:
    rank = rank_in(state)
    error = failure(rank.cut_off())
    assert isinstance(error, PeerLostError)
    assert "the connection to the daemon at store1:5555 was lost" in str(error)
    assert rank.state is RankState.OVER


@pytest.mark.parametrize("state", [RankState.NEW, RankState.OVER])
def test_a_connection_that_ends_without_a_session_is_nothing(state: RankState) -> None:
    assert rank_in(state).cut_off() == []


def test_a_stream_that_is_taken_back_can_be_opened_again_and_a_late_answer_to_it_is_nothing() -> None:
    rank = rank_in(RankState.OPENING)
    assert [type(instruction) for instruction in rank.stop()] == [Send]
    assert rank.state is RankState.READY
    assert rank.stop() == []
    assert rank.receive(Opened(stream=1, lanes=1), 0) == []
    rank.open(example_wanted(), now_ns=0)
    assert rank.receive(Opened(stream=1, lanes=1), 0) == []
    assert rank.receive(Opened(stream=2, lanes=1), 0)[-1] == StreamOpened(stream=2, lanes=1)


def test_a_daemon_told_to_stop_ends_the_stream_and_takes_another_order() -> None:
    daemon = daemon_in(DaemonState.STREAMING)
    assert daemon.receive(Stop(session=daemon.session), 0) == [StopStream()]
    assert daemon.state is DaemonState.AGREED
    assert refusal(daemon.receive(Stop(session=daemon.session), 0))
    assert daemon.state is DaemonState.OVER
