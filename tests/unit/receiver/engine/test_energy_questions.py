"""Questions for energy in the receive thread: parts, what is not written yet, daemons that go and come, deadlines."""

from collections.abc import Mapping
from typing import Any

import pytest

from emlio.energy.job.journal import StorageEnergy
from emlio.receiver.engine.energy_questions import energy_questions
from emlio.receiver.threads.promise import Promise
from emlio.wire.energy import DeviceRow, ReadingRow
from emlio.wire.questions import Absent, AskEnergy, Energy
from emlio_testing.asked_daemons import AskedDaemons

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


class _Crew(AskedDaemons):
    def __init__(self, count: int = 1) -> None:
        super().__init__(count, 100 * _S)

    def energy(self, stretches: Mapping[int, tuple[int, int]], timeout_s: int = 20) -> Promise:
        questions = energy_questions(self.pool, self.clock, stretches, timeout_s * _S)
        return self.ask(questions, lambda: [question.energy({}) for question in questions])

    def last(self) -> AskEnergy:
        """Return the body of the last question that was sent."""
        about = self.sent[-1][1].about
        assert isinstance(about, AskEnergy)
        return about


def _seconds(told: StorageEnergy) -> list[int]:
    return [reading.seq for reading in told.readings]


@pytest.fixture
def pool() -> _Crew:
    return _Crew()


def test_all_daemons_are_asked_at_once_each_for_its_own_stretch() -> None:
    pool = _Crew(2)
    answer = pool.energy({0: (10 * _S, 12 * _S), 1: (510 * _S, 512 * _S)})
    assert [number for number, _ in pool.sent] == [0, 1]
    assert (pool.last().from_ns, pool.last().to_ns) == (510 * _S, 512 * _S)
    pool.answer_next(_reply(510, 511, 512), 1)
    assert not answer.done()
    pool.answer_next(_reply(10, 11, 12), 0)
    first, second = answer.result(0)
    assert (first.daemon, _seconds(first)) == ("store0:5555", [10, 11, 12])
    assert (second.daemon, _seconds(second)) == ("store1:5555", [510, 511, 512])


def test_parts_are_asked_for_one_after_the_other_from_the_same_recording(pool: _Crew) -> None:
    answer = pool.energy({0: (10 * _S, 14 * _S)})
    assert (pool.last().recording, pool.last().first) == (0, 0)
    pool.answer_next(_reply(10, 11, more=True))
    assert (pool.last().recording, pool.last().first) == (3, 12)
    pool.answer_next(_reply(12, 13, 14))
    assert _seconds(answer.result(0)[0]) == [10, 11, 12, 13, 14]
    assert len(pool.sent) == 2


def test_what_the_recorder_has_not_written_yet_is_asked_for_again_a_moment_later(pool: _Crew) -> None:
    answer = pool.energy({0: (10 * _S, 12 * _S)})
    pool.answer_next(_reply(10, 11, live=True))
    assert len(pool.sent) == 1
    due_ns = pool.asker.deadline_ns()
    assert due_ns is not None
    assert due_ns - pool.clock.monotonic_ns() < _S
    pool.advance(1 * _S)
    assert (len(pool.sent), pool.last().first) == (2, 12)
    pool.answer_next(_reply(live=True))
    pool.advance(1 * _S)
    pool.answer_next(_reply(12, live=True))
    assert _seconds(answer.result(0)[0]) == [10, 11, 12]
    assert pool.asker.deadline_ns() is None


def test_a_recorder_that_was_killed_is_waited_for_a_few_seconds(pool: _Crew) -> None:
    answer = pool.energy({0: (10 * _S, 12 * _S)})
    for _ in range(4):
        assert not answer.done()
        pool.answer_next(_reply(10, 11, live=True) if len(pool.sent) == 1 else _reply(live=True))
        pool.advance(1 * _S)
    assert _seconds(answer.result(0)[0]) == [10, 11]
    assert answer.result(0)[0].absent == ""


def test_a_recording_that_ended_before_the_stretch_did_is_not_waited_for(pool: _Crew) -> None:
    answer = pool.energy({0: (10 * _S, 12 * _S)})
    pool.answer_next(_reply(10, 11))
    assert _seconds(answer.result(0)[0]) == [10, 11]


def test_a_daemon_that_has_no_recorder_says_why(pool: _Crew) -> None:
    answer = pool.energy({0: (10 * _S, 12 * _S)})
    pool.answer_next(Absent(text="no recorder"))
    assert answer.result(0) == [StorageEnergy(daemon="store0:5555", absent="no recorder")]


def test_a_daemon_whose_clock_is_not_known_is_not_asked(pool: _Crew) -> None:
    answer = pool.energy({})
    assert pool.sent == []
    assert "its clock could not be compared" in answer.result(0)[0].absent


def test_a_daemon_that_was_lost_is_asked_again_when_it_is_back(pool: _Crew) -> None:
    answer = pool.energy({0: (10 * _S, 12 * _S)})
    pool.answer_next(_reply(10, more=True))
    source = pool.sources.all[0]
    source.is_here = False
    pool.advance(1 * _S)
    source.come_back()
    pool.advance(1 * _S)
    assert (pool.sent[-1][1].session, pool.last().first) == (8, 11)
    pool.answer_next(_reply(11, 12))
    assert _seconds(answer.result(0)[0]) == [10, 11, 12]


def test_a_node_that_started_anew_has_another_clock(pool: _Crew) -> None:
    answer = pool.energy({0: (10 * _S, 12 * _S)})
    pool.answer_next(_reply(10, more=True))
    pool.answer_next(_reply(11, 12, boot="another"))
    assert answer.result(0)[0].readings == ()
    assert "its node restarted" in answer.result(0)[0].absent


def test_who_does_not_answer_in_time_is_left_out_and_its_late_answer_is_nobodys() -> None:
    pool = _Crew(2)
    answer = pool.energy({0: (10 * _S, 12 * _S), 1: (10 * _S, 12 * _S)}, timeout_s=5)
    pool.answer_next(_reply(10, 11, 12), 1)
    pool.advance(5 * _S)
    silent, prompt = answer.result(0)
    assert silent.absent == "it did not answer within 5 s"
    assert _seconds(prompt) == [10, 11, 12]
    again = pool.energy({0: (20 * _S, 22 * _S)})
    assert pool.last().from_ns == 20 * _S
    pool.answer_next(_reply(10, 11, 12))
    assert not again.done()
    pool.answer_next(_reply(20, 21, 22))
    assert _seconds(again.result(0)[0]) == [20, 21, 22]


def test_two_threads_that_ask_have_their_own_answers(pool: _Crew) -> None:
    one, two = pool.energy({0: (10 * _S, 12 * _S)}), pool.energy({0: (20 * _S, 22 * _S)})
    assert len(pool.sent) == 2
    pool.answer_next(_reply(20, 21, 22), later=1)
    pool.answer_next(_reply(10, 11, 12))
    assert _seconds(one.result(0)[0]) == [10, 11, 12]
    assert _seconds(two.result(0)[0]) == [20, 21, 22]


def test_a_daemon_that_is_released_is_not_waited_for() -> None:
    pool = _Crew(2)
    answer = pool.energy({0: (10 * _S, 12 * _S), 1: (10 * _S, 12 * _S)})
    pool.answer_next(_reply(10, 11, 12), 1)
    del pool.sources.all[0]
    pool.advance(1 * _S)
    assert "was removed" in answer.result(0)[0].absent


def test_nobody_waits_once_there_is_nobody_to_ask(pool: _Crew) -> None:
    before = pool.energy({0: (10 * _S, 12 * _S)})
    pool.asker.end()
    after = pool.energy({0: (10 * _S, 12 * _S)})
    for answer in (before, after):
        assert "closed before it answered" in answer.result(0)[0].absent
