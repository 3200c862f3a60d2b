"""The benchmark of tuners: environments, contenders and what is made of samples, without processes."""

import pytest

from emlio.receiver.tuning.choice import Joules
from emlio.receiver.tuning.snapshot import Snapshot
from emlio.receiver.tuning.state import Limits, RuleState
from emlio.receiver.tuning.tuning import Tuning
from emlio_bench.harness.results import Run, results_of
from emlio_bench.harness.spread import Value
from emlio_bench.tuning.contenders import AUTO, CONTENDERS, GOVERNOR, rule_of, turns_of
from emlio_bench.tuning.places import CHANGING, GRID, LENGTH_S, STATIC
from emlio_bench.tuning.rank import Sample
from emlio_bench.tuning.report import (
    GRID_SUBJECT,
    best_of,
    best_single,
    draw_tune,
    rates_of,
    regrets,
    setting_words,
    tune_figures,
    tune_parts,
)

MIB = 1 << 20
S = 1_000_000_000
LIMITS = Limits(least_window_bytes=128 * MIB, most_window_bytes=256 * MIB, lanes=0.4)


def _run(place: str, subject: str, number: int = 0, **fields: object) -> Run:
    return Run(scenario=place, subject=subject, round=number, place=0, **fields)  # type: ignore[arg-type]


def _grid(place: str, rates: dict[str, float], number: int = 0, stage: str = "0") -> Run:
    values = {name: Value(value=rate) for name, rate in rates.items()}
    return _run(place, GRID_SUBJECT, number, setting=stage, values=values)


def test_stages_of_an_environment_add_what_changes() -> None:
    stages = CHANGING["round-trip"].stages
    assert [(at_s, place.rtt_ns) for at_s, place in stages] == [
        (0.0, 1_000_000),
        (LENGTH_S, 30_000_000),
        (2 * LENGTH_S, 10_000_000),
    ]
    assert all(not place.changes for _, place in stages)
    assert all(len(place.stages) == 1 for place in STATIC.values())


def test_settings_of_the_grid_have_different_names() -> None:
    assert len({setting_words(tuning) for tuning in GRID}) == len(GRID)


@pytest.mark.parametrize("name", [name for name in CONTENDERS if name not in (AUTO, GOVERNOR)])
def test_a_contender_sets_within_the_bounds_whatever_comes(name: str) -> None:
    rule, state = rule_of(name), RuleState(tuning=Tuning(window_bytes=128 * MIB))
    assert callable(rule)
    changes = 0
    for number in range(200):
        seen = Snapshot(
            at_ns=number * S // 2,
            received_bytes=number * number * 10**6,
            wait_ns=number * S // 4,
            round_trip_ns=(30, 90)[number // 50 % 2] * 1_000_000,
            lanes=state.tuning.lanes or 4,
        )
        state, decision = rule(state, seen, LIMITS)
        if decision is not None:
            changes += 1
            assert decision.tuning == state.tuning
        assert 16 * MIB <= state.tuning.window_bytes <= 256 * MIB
        assert state.tuning.lanes <= 64
    if name != "DIAL":  # it does nothing where its model finds nothing likely
        assert (changes == 0) == (name == "at first")
    assert (rule_of(AUTO), rule_of(GOVERNOR)) == (None, Joules(0.98))


def test_where_the_user_is_slow_costs_are_those_of_the_fastest_setting_and_waits_are_bounded() -> None:
    def run(subject: str, number: int, cost: float, wait: float) -> Run:
        values = {"CPU s/GB": Value(value=cost), "wait": Value(value=wait)}
        return _run("lan-200MB/s", subject, number, values=values, words={"settings": "some"})

    fastest = setting_words(GRID[0])
    runs = [
        run(fastest, 0, 1.0, 0.0),
        run(fastest, 1, 0.8, 0.0),
        run(GOVERNOR, 0, 0.7, 0.0),
        run(GOVERNOR, 1, 0.6, 0.01),
    ]
    figures = {each.name: each for each in tune_figures(runs, bounded=True)}
    saved = figures["CPU s/GB / the fastest setting's, governor, lan-200MB/s"]
    assert list(saved.values) == pytest.approx([0.7, 0.75])
    assert saved.at_most == 0.75
    assert figures["share of waiting, governor, lan-200MB/s"].at_most == 0.005


def _took(place: str, subject: str, *rates: float) -> list[Run]:
    return [_run(place, subject, number, values={"bytes/s": Value(value=rate)}) for number, rate in enumerate(rates)]


def test_regret_is_what_is_missing_to_the_best_settings_of_the_grid_in_whole_runs() -> None:
    runs = [
        _grid("lan", {"a": 100.0, "b": 50.0, "c": 20.0, "d": 10.0}),
        _grid("30ms", {"a": 80.0, "b": 100.0, "c": 20.0, "d": 10.0}),
        *_took("lan", "a", 95, 96, 97),
        *_took("lan", "b", 50),
        *_took("lan", AUTO, 90, 92, 96),
        *_took("30ms", "a", 80),
        *_took("30ms", "b", 90),
        *_took("30ms", AUTO, 99),
        _run("30ms", AUTO, 1, failure="it failed"),
    ]
    assert best_of(runs, "lan") == ["a", "b", "c"]
    assert best_single(runs) == ["a"]
    found = regrets(runs)
    assert found[AUTO] == pytest.approx({"lan": 1 - 92 / 96, "30ms": -0.1})
    assert found["best single setting: a"] == pytest.approx({"lan": 0.0, "30ms": 1 - 80 / 90})
    figures = {one.name: one for one in tune_figures(runs, bounded=True)}
    assert figures["worst regret, auto"].at_most == 0.08
    assert figures["rate / that of the best single setting"].values == pytest.approx((92 / 96, 99 / 80))
    assert figures["runs that failed"].values == (1,)


def test_a_change_is_made_good_when_two_halves_of_a_second_are_near_the_oracle() -> None:
    times = tuple(0.5 * step for step in range(1, 121))
    rates = [10.0] * 120
    for step in range(40, 120):  # from 20 s on
        rates[step] = 100.0 if step in (41, *range(46, 80)) else 20.0
    values = {"bytes/s": Value(value=1.0)}
    runs = [
        _grid("round-trip", {"a": 100.0}, stage="1"),
        _grid("round-trip", {"b": 100.0}, stage="2"),
        _run("round-trip", "a", values=values, series={"time, s": times, "bytes/s": (100.0,) * 120}),
        _run("round-trip", "b", values=values, series={"time, s": times, "bytes/s": (50.0,) * 120}),
        _run("round-trip", AUTO, values=values, series={"time, s": times, "bytes/s": tuple(rates)}),
    ]
    assert best_of(runs, "round-trip") == ["a", "b"], "the best of each stage"
    figures = {one.name: one.values for one in tune_figures(runs, bounded=True)}
    assert figures["95 % of the oracle after round-trip, change 1"] == (3.5,)
    assert figures["95 % of the oracle after round-trip, change 2"] == (20.0,)
    came = (10 / 100, (100 * 35 + 20 * 5) / 40 / 100, 20 / 100)
    assert figures["mean regret under change, auto"] == pytest.approx((1 - sum(came) / 3,))
    results = results_of("tune", {}, tune_figures(runs, bounded=True), runs)
    assert any("20.0" in table.text() for part in tune_parts(results) for table in part.tables)
    assert draw_tune(results) is not None


def test_where_paths_change_the_best_of_each_stage_come_first_and_then_the_next_ones() -> None:
    runs = [
        _grid("rate", {"a": 100.0, "b": 90.0, "c": 80.0, "d": 70.0}),
        _grid("rate", {"a": 100.0, "b": 10.0, "c": 80.0, "d": 70.0}, stage="1"),
    ]
    assert best_of(runs, "rate") == ["a", "b", "c"]


def test_contenders_for_comparison_run_in_the_first_round_alone() -> None:
    those = (AUTO, "AIMD", "learned", "window 256 MiB")
    assert sorted(turns_of(those, 0)) == sorted(those)
    assert turns_of(those, 1) == ["learned", "window 256 MiB", AUTO]


def test_an_environment_is_walked_through_without_its_changes() -> None:
    walked = {name: [place.walked for _, place in whole.stages] for name, whole in CHANGING.items()}
    assert walked["rival"][0] == walked["rival"][1] == walked["rate"][0]
    assert walked["user"][0] == walked["user"][1] == STATIC["30ms"]
    assert [place.cores for place in walked["cores"]] == [0, 1, 0]


def test_rates_are_of_half_seconds() -> None:
    samples = [Sample(step / 10, step * 10, step * 10, 0.0, 0.0, 0.0) for step in range(21)]
    found = rates_of(samples)
    assert found["bytes/s"] == pytest.approx((100.0, 100.0, 100.0, 100.0))
    assert found["time, s"] == pytest.approx((0.5, 1.0, 1.5, 2.0))
