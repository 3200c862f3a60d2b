from dataclasses import replace
from pathlib import Path

import pytest
from sample_race import CONTEST, ENVIRONMENT, keep_race, make_contest, make_entrant, make_race, make_run

from emlio.errors import ConfigError
from emlio_bench.cli import main
from emlio_bench.harness.comparison import NO_DIFFERENCE, compare, compared
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.results import Figure, Results, Run, write_results
from emlio_bench.race.report.standing import race_figures

NEWER = replace(ENVIRONMENT, commit="ba9876543210")
ENTRANTS = (make_entrant("emlio", family="ours"), make_entrant("litdata"))


def compare_races(first: Results, second: Results) -> str:
    return compare(first, second, race_figures)


def race_of(*seconds: float, subject: str = "emlio", cpu_s: float = 1.0) -> Results:
    runs = [make_run(CONTEST, subject, round=number, seconds=one, cpu_s=cpu_s) for number, one in enumerate(seconds)]
    return replace(make_race([CONTEST], ENTRANTS, runs), environment=NEWER)


def line_of(said: str, words: str) -> str:
    (line,) = [line for line in said.splitlines() if words in line]
    return line


def test_a_change_of_software_is_what_is_compared() -> None:
    old = replace(race_of(2.0, 2.1, 2.2), environment=ENVIRONMENT)
    said = compare_races(old, race_of(1.0, 1.1, 0.9))
    assert said.startswith("A -> B: commit: 0123456789ab -> ba9876543210")
    assert line_of(said, "first epoch").endswith("better")
    assert "0.476" in line_of(said, "first epoch")
    assert line_of(said, "bit rate").endswith("better")
    assert line_of(said, "training cpu").endswith(NO_DIFFERENCE)


def test_overlapping_spreads_show_no_difference() -> None:
    said = compare_races(race_of(1.0, 1.2, 1.4), race_of(1.3, 1.5, 1.7))
    assert line_of(said, "first epoch").endswith(NO_DIFFERENCE)
    assert "the same software" in said


def test_one_run_each_is_too_few() -> None:
    assert line_of(compare_races(race_of(1.0), race_of(2.0)), "first epoch").endswith("one run is too few to tell")


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ((90.0, 90.0), (90.0, 90.0), "both were cut"),
        ((90.0, 90.0), (20.0, 21.0), "better"),
        ((20.0, 21.0), (90.0, 90.0), "worse"),
    ],
)
def test_cut_runs_are_bounds(first: tuple[float, ...], second: tuple[float, ...], said: str) -> None:
    table = compare_races(race_of(*first), race_of(*second))
    assert line_of(table, "first epoch").endswith(said)
    assert line_of(table, "bit rate").endswith(said)


@pytest.mark.parametrize("field", ["cpu", "kernel", "tcp_wmem", "tcp_congestion_control"])
def test_other_machines_are_refused(field: str) -> None:
    other = replace(race_of(1.0), environment=replace(ENVIRONMENT, **{field: "another"}))
    with pytest.raises(ConfigError, match=f"{field} '.*' and 'another'"):
        compare_races(race_of(1.0), other)


def test_other_contests_and_settings_are_refused() -> None:
    race = race_of(1.0)
    with pytest.raises(ConfigError, match="contests 600MB-30ms"):
        compare_races(race, replace(race, contests=(make_contest(records=60),)))
    with pytest.raises(ConfigError, match="setting rtt '30ms' and '1ms'"):
        compare_races(race, replace(race, settings=(("rounds", "3"), ("rtt", "1ms"))))


def test_more_rounds_may_be_compared_and_who_is_alone_is_told() -> None:
    other = replace(race_of(1.0, subject="litdata"), settings=(("rounds", "5"), ("rtt", "30ms")))
    said = compare_races(race_of(1.0), other)
    assert "They have no figure in common." in said
    assert "only A has 600MB-30ms, emlio, default" in said
    assert "only B has 600MB-30ms, litdata, default" in said


# ---- other results --------------------------------------------------------------------------------------------------


def results_of(values: tuple[float, ...], *, name: str = "wait", sizes: str = "1kB", bytes_per: int = 1000) -> Results:
    samples = [
        Run(
            scenario="100 kB",
            subject="emlio-global",
            round=number,
            place=0,
            measured=Measurement(
                payload_bytes=bytes_per + number, records=1, elapsed_ns=1000, sender_cpu_ns=5, receiver_cpu_ns=5
            ),
        )
        for number in range(2)
    ]
    return Results(
        benchmark="delivery",
        environment=ENVIRONMENT,
        settings=(("sizes", sizes),),
        samples=tuple(samples),
        figures=(Figure(name=name, unit="ms", values=values),),
    )


def test_figures_of_other_benchmarks_are_compared() -> None:
    said = compare(results_of((1.0, 2.0)), results_of((3.0, 4.0), bytes_per=2000), compared)
    assert line_of(said, "wait").endswith("more")
    assert line_of(said, "bytes/s").endswith("better")
    assert "only A has wait" in compare(results_of((1.0,)), results_of((1.0,), name="other"), compared)


def test_other_results_that_were_told_other_things_are_refused() -> None:
    with pytest.raises(ConfigError, match="setting sizes '1kB' and '2kB'"):
        compare(results_of((1.0,)), results_of((1.0,), sizes="2kB"), compared)


# ---- the command ----------------------------------------------------------------------------------------------------


def test_the_command_takes_races_and_results_but_not_one_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "ab":
        write_results(results_of((1.0, 2.0)), tmp_path / f"{name}.json")
        keep_race(race_of(1.0, 2.0), tmp_path / name)
        write_results(race_of(1.0, 2.0), tmp_path / f"race-{name}.json")
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert line_of(capsys.readouterr().out, "wait").endswith(NO_DIFFERENCE)
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "race-b.json")]) == 0
    assert line_of(capsys.readouterr().out, "first epoch").endswith(NO_DIFFERENCE)
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b")]) == 2
    assert "are of two kinds" in capsys.readouterr().err
    (tmp_path / "other.json").write_text("[1]")
    assert main(["compare", str(tmp_path / "other.json"), str(tmp_path / "b.json")]) == 2
    assert "results must be JSON" in capsys.readouterr().err
    assert main(["compare", str(tmp_path / "none.json"), str(tmp_path / "b.json")]) == 2
    assert "must be readable" in capsys.readouterr().err
