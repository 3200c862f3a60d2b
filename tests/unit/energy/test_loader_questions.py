"""Questions for energy in the receive thread: parts, what is not written yet, daemons that go and come, deadlines."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from emlio.energy.job.journal import StorageEnergy
from emlio.receiver.engine.asker import Asker
from emlio.receiver.engine.energy_questions import energy_questions
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.threads.promise import Promise
from emlio.session.instructions import AnswerCame, RankInstruction, Send
from emlio.session.states import RankState
from emlio.wire.control import ControlMessage
from emlio.wire.energy import DeviceRow, ReadingRow
from emlio.wire.questions import Absent, Answer, AskEnergy, Energy, Question, Told
from emlio_testing.clock import ManualClock
from emlio_testing.session_states import rank_in

_S = 1_000_000_000
_DEVICE = DeviceRow("package-0", "cpu", "powercap", "measured", None, None, None, None, "", True)


def _reply(*seconds: int, **more: Any) -> Energy:
    rows = [ReadingRow(at, at * _S, at * _S, 0, [at], [], 0, False, *[None] * 6) for at in seconds]
    fields: dict[str, Any] = {
        "node": "s1",
        "boot": "b",
        "recording": 3,
        "interval_ns": 1,
        "devices": [_DEVICE],
        "readings": rows,
    }
    return Energy(**(fields | more))


class _Source:
    """A daemon as the questions see it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.peer_name = f"store{number}:5555"
        self.conversation = rank_in(RankState.STREAMING)
        self.is_here = True

    @property
    def is_heard(self) -> bool:
        return self.is_here

    def come_back(self) -> None:
        self.conversation = rank_in(RankState.READY)
        self.conversation.session = 8
        self.is_here = True


class _Sources:
    def __init__(self, count: int) -> None:
        self.all = [_Source(number) for number in range(count)]

    def __iter__(self) -> Iterator[_Source]:
        return iter(self.all)

    def number(self, number: int) -> _Source | None:
        return next((source for source in self.all if source.number == number), None)


class _Crew:
    def __init__(self, count: int = 1) -> None:
        self.sources = _Sources(count)
        self.sent: list[tuple[int, ControlMessage]] = []
        self.clock = ManualClock(100 * _S)
        self.questions = Asker(cast("DaemonPool", self), self.clock)

    def carry_out(self, source: _Source, instructions: list[RankInstruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Send):
                self.sent.append((source.number, instruction.message))
            elif isinstance(instruction, AnswerCame):
                self.questions.hear(source.number, instruction)

    def ask(self, stretches: Mapping[int, tuple[int, int]], timeout_s: int = 20) -> Promise:
        answer = Promise()
        pool = cast("DaemonPool", self)
        questions = energy_questions(pool, self.clock, stretches, timeout_s * _S)
        self.questions.ask(questions, answer, lambda: [question.energy({}) for question in questions])
        return answer

    def answers(self, told: Told, number: int = 0, *, later: int = 0) -> None:
        """The daemon with this number answers its first question, or a later one."""
        source = self.sources.all[number]
        answer = Answer(number=sorted(source.conversation._questions._open)[later], told=told)
        self.carry_out(source, source.conversation.receive(answer, self.clock.monotonic_ns()))
        self.questions.tick()

    def advance(self, seconds: float) -> None:
        self.clock.advance(round(seconds * _S))
        self.questions.tick()

    def asked(self) -> AskEnergy:
        """What the last question that was sent is about."""
        message = self.sent[-1][1]
        assert isinstance(message, Question)
        assert isinstance(message.about, AskEnergy)
        return message.about


def _seconds(told: StorageEnergy) -> list[int]:
    return [reading.seq for reading in told.readings]


@pytest.fixture
def pool() -> _Crew:
    return _Crew()


def test_all_daemons_are_asked_at_once_each_for_its_own_stretch() -> None:
    pool = _Crew(2)
    answer = pool.ask({0: (10 * _S, 12 * _S), 1: (510 * _S, 512 * _S)})
    assert [(number, type(message)) for number, message in pool.sent] == [(0, Question), (1, Question)]
    assert (pool.asked().from_ns, pool.asked().to_ns) == (510 * _S, 512 * _S)
    pool.answers(_reply(510, 511, 512), 1)
    assert not answer.done()
    pool.answers(_reply(10, 11, 12), 0)
    first, second = answer.result(0)
    assert (first.daemon, _seconds(first)) == ("store0:5555", [10, 11, 12])
    assert (second.daemon, _seconds(second)) == ("store1:5555", [510, 511, 512])


def test_parts_are_asked_for_one_after_the_other_from_the_same_recording(pool: _Crew) -> None:
    answer = pool.ask({0: (10 * _S, 14 * _S)})
    assert (pool.asked().recording, pool.asked().first) == (0, 0)
    pool.answers(_reply(10, 11, more=True))
    assert (pool.asked().recording, pool.asked().first) == (3, 12)
    pool.answers(_reply(12, 13, 14))
    assert _seconds(answer.result(0)[0]) == [10, 11, 12, 13, 14]
    assert len(pool.sent) == 2


def test_what_the_recorder_has_not_written_yet_is_asked_for_again_a_moment_later(pool: _Crew) -> None:
    answer = pool.ask({0: (10 * _S, 12 * _S)})
    pool.answers(_reply(10, 11, live=True))
    assert len(pool.sent) == 1
    due_ns = pool.questions.deadline_ns()
    assert due_ns is not None
    assert due_ns - pool.clock.monotonic_ns() < _S
    pool.advance(1)
    assert (len(pool.sent), pool.asked().first) == (2, 12)
    pool.answers(_reply(live=True))
    pool.advance(1)
    pool.answers(_reply(12, live=True))
    assert _seconds(answer.result(0)[0]) == [10, 11, 12]
    assert pool.questions.deadline_ns() is None


def test_a_recorder_that_was_killed_is_waited_for_a_few_seconds(pool: _Crew) -> None:
    answer = pool.ask({0: (10 * _S, 12 * _S)})
    for _ in range(4):
        assert not answer.done()
        pool.answers(_reply(10, 11, live=True) if len(pool.sent) == 1 else _reply(live=True))
        pool.advance(1)
    assert _seconds(answer.result(0)[0]) == [10, 11]
    assert answer.result(0)[0].absent == ""


def test_a_recording_that_ended_before_the_stretch_did_is_not_waited_for(pool: _Crew) -> None:
    answer = pool.ask({0: (10 * _S, 12 * _S)})
    pool.answers(_reply(10, 11))
    assert _seconds(answer.result(0)[0]) == [10, 11]


def test_a_daemon_that_has_no_recorder_says_why(pool: _Crew) -> None:
    answer = pool.ask({0: (10 * _S, 12 * _S)})
    pool.answers(Absent(text="no recorder"))
    assert answer.result(0) == [StorageEnergy(daemon="store0:5555", absent="no recorder")]


def test_a_daemon_whose_clock_is_not_known_is_not_asked(pool: _Crew) -> None:
    answer = pool.ask({})
    assert pool.sent == []
    assert "its clock could not be compared" in answer.result(0)[0].absent


def test_a_daemon_that_was_lost_is_asked_again_when_it_is_back(pool: _Crew) -> None:
    answer = pool.ask({0: (10 * _S, 12 * _S)})
    pool.answers(_reply(10, more=True))
    source = pool.sources.all[0]
    source.is_here = False
    pool.advance(1)
    source.come_back()
    pool.advance(1)
    assert isinstance(pool.sent[-1][1], Question)
    assert (pool.sent[-1][1].session, pool.asked().first) == (8, 11)
    pool.answers(_reply(11, 12))
    assert _seconds(answer.result(0)[0]) == [10, 11, 12]


def test_a_node_that_started_anew_has_another_clock(pool: _Crew) -> None:
    answer = pool.ask({0: (10 * _S, 12 * _S)})
    pool.answers(_reply(10, more=True))
    pool.answers(_reply(11, 12, boot="another"))
    assert answer.result(0)[0].readings == ()
    assert "its node restarted" in answer.result(0)[0].absent


def test_who_does_not_answer_in_time_is_left_out_and_its_late_answer_is_nobodys() -> None:
    pool = _Crew(2)
    answer = pool.ask({0: (10 * _S, 12 * _S), 1: (10 * _S, 12 * _S)}, timeout_s=5)
    pool.answers(_reply(10, 11, 12), 1)
    pool.advance(5)
    silent, prompt = answer.result(0)
    assert silent.absent == "it did not answer within 5 s"
    assert _seconds(prompt) == [10, 11, 12]
    again = pool.ask({0: (20 * _S, 22 * _S)})
    assert pool.asked().from_ns == 20 * _S
    pool.answers(_reply(10, 11, 12))
    assert not again.done()
    pool.answers(_reply(20, 21, 22))
    assert _seconds(again.result(0)[0]) == [20, 21, 22]


def test_two_threads_that_ask_have_their_own_answers(pool: _Crew) -> None:
    one, two = pool.ask({0: (10 * _S, 12 * _S)}), pool.ask({0: (20 * _S, 22 * _S)})
    assert len(pool.sent) == 2
    pool.answers(_reply(20, 21, 22), later=1)
    pool.answers(_reply(10, 11, 12))
    assert _seconds(one.result(0)[0]) == [10, 11, 12]
    assert _seconds(two.result(0)[0]) == [20, 21, 22]


def test_a_daemon_that_is_released_is_not_waited_for() -> None:
    pool = _Crew(2)
    answer = pool.ask({0: (10 * _S, 12 * _S), 1: (10 * _S, 12 * _S)})
    pool.answers(_reply(10, 11, 12), 1)
    del pool.sources.all[0]
    pool.advance(1)
    assert "was removed" in answer.result(0)[0].absent


def test_nobody_waits_once_there_is_nobody_to_ask(pool: _Crew) -> None:
    before = pool.ask({0: (10 * _S, 12 * _S)})
    pool.questions.end()
    after = pool.ask({0: (10 * _S, 12 * _S)})
    for answer in (before, after):
        assert "closed before it answered" in answer.result(0)[0].absent
