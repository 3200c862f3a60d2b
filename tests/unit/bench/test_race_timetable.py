import pytest

from emlio.errors import ConfigError
from emlio_bench.harness.contest import Contest, Corpus
from emlio_bench.harness.results import Run
from emlio_bench.harness.spread import Value
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.run.scenarios import SCENARIOS, contests_of
from emlio_bench.race.run.timetable import Timetable

SECOND = 1_000_000_000
CONTEST = Contest(name="read-30ms", words="read", corpus=Corpus(records=100, record_bytes=1000), rtt_ns=30_000_000)


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def ended(*, cut: bool = False, failure: str | None = None) -> Run:
    values = {
        Quantity.FIRST_EPOCH: Value(value=2.0, beyond=">" if cut else ""),
        Quantity.BIT_RATE: Value(value=2e9, beyond="<" if cut else ""),
        Quantity.RECORDS: Value(value=50),
    }
    return Run(
        scenario=CONTEST.name,
        subject="litdata",
        setting="tuned",
        round=0,
        place=0,
        values={} if failure else {str(name): value for name, value in values.items()},
        failure=failure,
    )


def test_what_is_left_takes_as_long_as_what_was_done() -> None:
    clock = Clock()
    times = Timetable(4, clock_ns=clock)
    assert times.left_ns == 0
    for _ in range(2):
        clock.now_ns += 3 * SECOND
        times.add(("litdata", "tuned"), 2 * SECOND)
    assert times.left_ns == 6 * SECOND
    times.leave_out()
    assert times.left_ns == 3 * SECOND


def test_a_line_says_where_the_race_is() -> None:
    clock = Clock()
    times = Timetable(2, clock_ns=clock)
    clock.now_ns = 3 * SECOND
    times.add(("litdata", "tuned"), 2 * SECOND)
    assert times.line(CONTEST, ended()) == "[1/2, about 3 s left] read-30ms: litdata, tuned: 2.00 s, 2.00 Gbit/s"
    times.leave_out()
    assert times.line(CONTEST, ended()).startswith("[2/2] ")


def test_a_line_says_what_went_wrong() -> None:
    times = Timetable(1, clock_ns=Clock())
    assert "cut after 2.0 s with 50 records read" in times.line(CONTEST, ended(cut=True))
    assert times.line(CONTEST, ended(failure="no bucket\nat all")).endswith("failed: no bucket")


def test_every_scenario_is_run_at_every_round_trip() -> None:
    contests = contests_of(tuple(SCENARIOS), (100_000, 30_000_000), payload_bytes=60_000_000, epochs=2, limit_ns=SECOND)
    assert len({contest.name for contest in contests}) == len(contests) == 2 * len(SCENARIOS)
    for contest in contests:
        assert contest.limit_ns == SECOND
        assert 0 <= 60_000_000 - contest.corpus.payload_bytes < contest.corpus.record_bytes


def test_a_step_is_told_in_name_and_words() -> None:
    [contest] = contests_of(
        ["pictures"], [100_000], payload_bytes=60_000_000, epochs=2, limit_ns=SECOND, step_ns=SECOND // 4
    )
    assert (contest.name, contest.step_ns) == ("pictures-step250ms-60MB-100µs", SECOND // 4)
    assert contest.words.endswith("by DALI on the processor, and a step of 250 ms after each batch")


def test_a_step_is_refused_where_the_scenario_has_one() -> None:
    with pytest.raises(ConfigError, match=r"without one, resnet has 50 ms, got 1 s"):
        contests_of(["read", "resnet"], [0], payload_bytes=1_000_000, epochs=1, limit_ns=1, step_ns=SECOND)


def test_an_unknown_scenario_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"one of read, .* got sleep"):
        contests_of(["sleep"], [0], payload_bytes=1_000_000, epochs=1, limit_ns=1)
