"""Questions: when they are allowed, how many are open, and answers that do not fit."""

from typing import Any

import pytest

from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.session.instructions import AnswerCame, LookUp, Send
from emlio.session.rank import RankSession
from emlio.session.states import DaemonState, RankState
from emlio.wire.control import Open, Pong
from emlio.wire.energy import DeviceRow, ReadingRow
from emlio.wire.limits import (
    MOST_QUESTIONS,
    MOST_RANGE_QUESTIONS,
    RECORD_BYTES_PER_REPLY,
    RECORDS_PER_REQUEST,
    RECORDS_PER_SIZES,
)
from emlio.wire.questions import (
    Absent,
    Answer,
    AskEnergy,
    AskRanges,
    AskRecords,
    AskSizes,
    AskTree,
    Energy,
    Matches,
    Question,
    Ranges,
    RecordRow,
    Records,
    Sizes,
    Subject,
    Told,
    TreePart,
)
from emlio_testing.session_pair import example_wanted
from emlio_testing.session_states import daemon_in, failure, rank_in, refusal

_S = 1_000_000_000
_WITHOUT_SESSION = (RankState.NEW, RankState.GREETING, RankState.OVER)
_WITH_SESSION = [state for state in RankState if state not in _WITHOUT_SESSION]
_ROWS = [RecordRow("a", 3), RecordRow("b", 0)]
_DEVICE = DeviceRow("package-0", "cpu", "powercap", "measured", None, None, None, None, "", True)

_ASK_SIZES = AskSizes(shard="a", first=3, count=2)
_ASK_RECORDS = AskRecords(records=_ROWS)
_ASK_ENERGY = AskEnergy(from_ns=10, to_ns=20, recording=3, first=4)


def _sizes(size_bytes: int) -> Sizes:
    return Sizes(offset=60, sizes=bytes(size_bytes))


def _records(*sizes: int, payload_bytes: int | None = None, **fields: Any) -> Records:
    packed = b"".join(size.to_bytes(4, "little") for size in sizes)
    payload = bytes(sum(sizes) if payload_bytes is None else payload_bytes)
    return Records(**({"sizes": packed, "payload": payload} | fields))


def _row(seq: int, *totals: int | None, events: tuple[str, ...] = (), at_ns: int | None = None) -> ReadingRow:
    at_ns = seq * _S if at_ns is None else at_ns
    return ReadingRow(seq, at_ns, at_ns, 0, list(totals), list(events), 0, False, *[None] * 6)


def _energy(*rows: ReadingRow, **more: Any) -> Energy:
    fields: dict[str, Any] = {"recording": 3, "devices": [_DEVICE], "readings": list(rows)}
    return Energy(**({"node": "s1", "boot": "b", "interval_ns": 0} | fields | more))


_DIGEST = bytes(range(16))


def _asked(*ranges: tuple[int, int, int], cut: int = 0) -> AskRanges:
    packed = b"".join(
        file.to_bytes(4, "little") + length.to_bytes(4, "little") + at.to_bytes(8, "little")
        for file, length, at in ranges
    )
    return AskRanges(tree=_DIGEST, ranges=packed[: len(packed) - cut])


def _part(**fields: Any) -> TreePart:
    whole = {"tree": _DIGEST, "first": 0, "count": 2, "total": 5, "size": 9, "data": b""}
    return TreePart(**(whole | fields))


def _ranges(count: int, size_bytes: int) -> Ranges:
    return Ranges(crcs=bytes(4 * count), payload=memoryview(bytes(size_bytes)))


_ASK_TREE = AskTree(tree=_DIGEST, first=3)
_ASK_RANGES = _asked((1, 10, 0), (9, 20, 1 << 40), (2, 2**32 - 1, 0))
_FULL = RECORD_BYTES_PER_REPLY
_ABSENT = Absent(code="dataset", text="gone")
_FITTING: list[tuple[Subject, Told]] = [
    (_ASK_SIZES, _sizes(8)),
    (_ASK_SIZES, _sizes(4)),
    (_ASK_SIZES, Sizes(offset=0, sizes=b"")),
    (AskSizes(shard="a", first=0, count=2 * RECORDS_PER_SIZES), _sizes(4 * RECORDS_PER_SIZES)),
    (_ASK_RECORDS, _records(5, 9, crcs=bytes(8))),
    (_ASK_RECORDS, _records(5)),
    (_ASK_RECORDS, _records(0)),
    (_ASK_RECORDS, _ABSENT),
    (AskRecords(records=_ROWS[:1]), _records(10, payload_bytes=4)),
    (AskRecords(records=_ROWS[:1], offset=9), _records(10, payload_bytes=1)),
    (_ASK_ENERGY, _energy(_row(4, 5), _row(6, None))),
    (_ASK_ENERGY, _ABSENT),
    (AskTree(), _part()),
    (_ASK_TREE, _part(first=3)),
    (_ASK_TREE, _ABSENT),
    (_ASK_RANGES, _ranges(1, 10)),
    (_ASK_RANGES, _ranges(2, 30)),
    (_ASK_RANGES, _ranges(3, _FULL)),
    (_ASK_RANGES, _ABSENT),
]
_MISFITS: list[tuple[Subject, Told, str]] = [
    (_ASK_SIZES, _sizes(1), "must have 4 bytes each and at most 8 bytes, got 1"),
    (_ASK_SIZES, _sizes(7), "at most 8 bytes, got 7"),
    (_ASK_SIZES, _sizes(12), "at most 8 bytes, got 12"),
    (_ASK_SIZES, _ABSENT, "a question for sizes must be answered with sizes, got absent"),
    (_ASK_SIZES, _records(1), "must be answered with sizes, got records"),
    (_ASK_RECORDS, _energy(), "must be answered with records, got energy"),
    (_ASK_ENERGY, _sizes(4), "must be answered with energy, got sizes"),
    (_ASK_RECORDS, Matches(first=0, size=1, total=1, data=b""), "must be answered with records, got matches"),
    (_ASK_RECORDS, _records(), "sizes of 4 bytes each for 1 record or more"),
    (_ASK_RECORDS, _records(1, 1, 1), "for 1 record or more, and no others, got 12 bytes"),
    (_ASK_RECORDS, _records(1, sizes=bytes(3)), "got 3 bytes"),
    (_ASK_RECORDS, _records(1, 1, crcs=bytes(4)), "as many checksums as sizes"),
    (_ASK_RECORDS, _records(5, 9, payload_bytes=13), "hold its 2 records of 14 bytes, got 13"),
    (_ASK_RECORDS, _records(5, payload_bytes=6), "hold 1 to 5 bytes of the rest of its record, got 6"),
    (_ASK_RECORDS, _records(5, payload_bytes=0), "got 0"),
    (AskRecords(records=_ROWS[:1], offset=9), _records(10, payload_bytes=2), "hold 1 to 1 bytes"),
    (_ASK_ENERGY, _energy(_row(4, 5), recording=2), "continue recording 3"),
    (_ASK_ENERGY, _energy(_row(3, 5)), "begin at reading 4, got 3"),
    (_ASK_ENERGY, _energy(_row(4, 5, 6)), "a total for each of 1 devices, got 2"),
    (_ASK_ENERGY, _energy(_row(4, 5, events=("gap", "gap"))), "a total for each of 1 devices"),
    (_ASK_ENERGY, _energy(_row(5, 5), _row(5, 6)), "in order of time, got 5 after 5"),
    (_ASK_ENERGY, _energy(_row(5, 5), _row(6, 6, at_ns=5 * _S)), "in order of time, got 6 after 5"),
    (_ASK_ENERGY, _energy(more=True), "readings if it is incomplete"),
    (AskTree(), _part(first=1), "must continue at entry 0, got 1 of 5"),
    (_ASK_TREE, _part(first=3, tree=bytes(16)), "must continue at entry 3"),
    (_ASK_TREE, _part(first=3, count=3), "must continue at entry 3, got 3 of 5"),
    (_ASK_TREE, _ranges(1, 10), "must be answered with tree, got ranges"),
    (_ASK_RANGES, _ranges(4, 30), "for 1 to 3 ranges, got 16 bytes"),
    (_ASK_RANGES, _ranges(0, 30), "for 1 to 3 ranges, got 0 bytes"),
    (_ASK_RANGES, Ranges(crcs=bytes(5), payload=memoryview(bytes(10))), "got 5 bytes"),
    (_ASK_RANGES, _ranges(1, 9), "hold 10 bytes of 1 ranges, got 9"),
    (_ASK_RANGES, _ranges(1, 11), "hold 1 to 10 bytes for 1 ranges, got 11"),
    (_ASK_RANGES, _ranges(2, 10), "hold 11 to 30 bytes for 2 ranges, got 10"),
    (_ASK_RANGES, _ranges(3, _FULL - 1), f"got {_FULL - 1}"),
]
_INVALID: list[tuple[Subject, str]] = [
    (AskSizes(shard="a", first=-1, count=1), "got 1 from record -1 of a"),
    (AskSizes(shard="a", first=0, count=0), "got 0 from record 0 of a"),
    (AskRecords(records=[]), "got 0 records from byte 0"),
    (AskRecords(records=_ROWS * RECORDS_PER_REQUEST), "got 128 records from byte 0"),
    (AskRecords(records=_ROWS, offset=1), "got 2 records from byte 1"),
    (AskEnergy(from_ns=-1, to_ns=5), "got -1 ns to 5 ns"),
    (AskEnergy(from_ns=6, to_ns=5), "got 6 ns to 5 ns"),
    (AskTree(first=1), "from 0 on before its digest is known, got 1"),
    (_asked((1, 10, 0), (2, 0, 0)), "at least 1 byte of a file, got 32 bytes"),
    (_asked((1, 10, 0), (2, 5, 0), cut=1), "got 31 bytes"),
]


def _question(number: int, about: Subject = _ASK_SIZES) -> Question:
    return Question(session=7, number=number, about=about)


def _blame(rank: RankSession, answer: Answer) -> str:
    """Return the error that a rank raises for an invalid answer."""
    error = failure(rank.receive(answer, 0))
    assert isinstance(error, RemoteProtocolError)
    assert rank.state is RankState.OVER
    return str(error)


@pytest.mark.parametrize("state", _WITH_SESSION)
def test_questions_are_allowed_in_every_state_of_a_session_and_change_none(state: RankState) -> None:
    rank = rank_in(state)
    for number, (about, told) in enumerate(_FITTING):
        assert rank.takes_question(AskSizes)
        assert rank.ask(about) == _question(number, about)
        came = AnswerCame(session=7, number=number, about=about, told=told)
        assert rank.receive(Answer(number=number, told=told), 0) == [came]
    assert rank.state is state


@pytest.mark.parametrize("state", _WITHOUT_SESSION)
def test_without_a_session_no_daemon_can_be_asked(state: RankState) -> None:
    rank = rank_in(state)
    assert not rank.takes_question(AskSizes)
    with pytest.raises(LocalProtocolError, match=f"'ask' is not allowed in state '{state.value}'"):
        rank.ask(_ASK_SIZES)
    assert rank.state is state


@pytest.mark.parametrize(("about", "words"), _INVALID)
def test_a_question_that_is_not_valid_is_the_askers_fault(about: Subject, words: str) -> None:
    rank = rank_in(RankState.READY)
    with pytest.raises(LocalProtocolError, match=words):
        rank.ask(about)
    assert rank.ask(_ASK_SIZES) == _question(0)
    daemon = daemon_in(DaemonState.STREAMING)
    assert words in refusal(daemon.receive(_question(0, about), 0)).text


@pytest.mark.parametrize(("about", "told", "words"), _MISFITS)
def test_an_answer_that_does_not_fit_is_the_daemons_fault(about: Subject, told: Told, words: str) -> None:
    rank = rank_in(RankState.STREAMING)
    rank.ask(about)
    assert words in _blame(rank, Answer(number=0, told=told))


@pytest.mark.parametrize("state", [state for state in RankState if state not in (RankState.NEW, RankState.OVER)])
def test_an_answer_without_a_question_is_the_daemons_fault(state: RankState) -> None:
    assert "question 3 must be open" in _blame(rank_in(state), Answer(number=3, told=_sizes(4)))


def test_an_answer_that_comes_twice_is_the_daemons_fault() -> None:
    rank = rank_in(RankState.STREAMING)
    rank.ask(_ASK_SIZES)
    rank.receive(Answer(number=0, told=_sizes(4)), 0)
    assert "question 0 must be open" in _blame(rank, Answer(number=0, told=_sizes(4)))


def test_few_questions_are_open_and_answers_may_come_in_any_order() -> None:
    rank = rank_in(RankState.LISTED)
    for number in range(MOST_QUESTIONS - 1):
        assert rank.ask(_ASK_SIZES).number == number
    assert not rank.takes_question(AskSizes)
    with pytest.raises(LocalProtocolError, match=f"at most {MOST_QUESTIONS} questions"):
        rank.ask(_ASK_SIZES)
    (send,) = rank.ask_matches("y == 1")  # for which there is always room
    assert isinstance(send, Send)
    rank.receive(Answer(number=5, told=_sizes(4)), 0)
    assert not rank.takes_question(AskSizes)
    rank.receive(Answer(number=2, told=_sizes(4)), 0)
    assert rank.takes_question(AskSizes)


def test_more_questions_for_ranges_are_open_beside_the_others() -> None:
    rank, daemon = rank_in(RankState.STREAMING), daemon_in(DaemonState.STREAMING)
    for _ in range(MOST_RANGE_QUESTIONS):
        daemon.receive(rank.ask(_ASK_RANGES), 0)
    assert not rank.takes_question(AskRanges)
    with pytest.raises(LocalProtocolError, match=f"{MOST_RANGE_QUESTIONS} for ranges"):
        rank.ask(_ASK_RANGES)
    for _ in range(MOST_QUESTIONS - 1):
        assert daemon.receive(rank.ask(_ASK_SIZES), 0)
    rank.receive(Answer(number=3, told=_ABSENT), 0)
    assert rank.takes_question(AskRanges)
    assert not rank.takes_question(AskSizes)
    refused = refusal(daemon.receive(_question(99, _ASK_RANGES), 0))
    assert f"at most {MOST_RANGE_QUESTIONS} for ranges may be open" in refused.text


@pytest.mark.parametrize("state", [state for state in DaemonState if state is not DaemonState.OVER])
def test_a_daemon_looks_questions_up_in_every_state_and_answers_each_once(state: DaemonState) -> None:
    daemon = daemon_in(state)
    for about, _ in _FITTING:
        assert daemon.receive(_question(1, about), 0) == [LookUp(question=_question(1, about))]
        assert daemon.answered(1)
        assert not daemon.answered(1)
    assert daemon.state is state


def test_a_daemon_whose_session_is_over_looks_nothing_up() -> None:
    assert daemon_in(DaemonState.OVER).receive(_question(3), 0) == []


@pytest.mark.parametrize("number", [1, 99], ids=["number again", "too many"])
def test_a_daemon_refuses_more_questions_than_are_allowed(number: int) -> None:
    daemon = daemon_in(DaemonState.STREAMING)
    for open_number in range(1, MOST_QUESTIONS + (number == 99)):
        daemon.receive(_question(open_number), 0)
    refused = refusal(daemon.receive(_question(number), 0))
    assert refused.code == "protocol"
    assert f"at most {MOST_QUESTIONS} may be open, got question {number}" in refused.text
    assert daemon.state is DaemonState.OVER
    assert not daemon.answered(1)


def test_a_question_shows_the_daemon_that_the_rank_lives() -> None:
    daemon = daemon_in(DaemonState.STREAMING)
    daemon.receive(_question(0), 4 * _S)
    assert daemon.tick(8 * _S) == []
    assert daemon.deadline_ns() == 9 * _S


def test_a_daemon_that_speaks_is_not_given_up_for_an_answer_that_does_not_come() -> None:
    rank = rank_in(RankState.STREAMING)
    rank.ask(_ASK_SIZES)
    for second in range(1, 60):
        rank.receive(Pong(nonce=10**9), second * _S)
        assert all(isinstance(instruction, Send) for instruction in rank.tick(second * _S))
    assert rank.state is RankState.STREAMING
    assert isinstance(rank.receive(Answer(number=0, told=_sizes(4)), 60 * _S)[0], AnswerCame)


def test_an_answer_neither_answers_nor_prolongs_another_request() -> None:
    rank = rank_in(RankState.READY)
    (order,) = rank.open(example_wanted(), now_ns=0)
    assert isinstance(order, Send)
    assert isinstance(order.message, Open)
    rank.ask(_ASK_SIZES)
    for second in range(1, 9):
        rank.tick(second * _S)
    rank.receive(Answer(number=0, told=_sizes(4)), 9 * _S)
    assert "must answer within 10 s" in str(failure(rank.tick(10 * _S)))
