from dataclasses import replace
from pathlib import Path

import pytest

from emlio_bench.cli import COMMANDS, main
from emlio_bench.delivery.run import DeliverySettings, make_subjects
from emlio_bench.harness.command import CommonSettings, World
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.report import Part
from emlio_bench.harness.results import Figure, Results, read_results


def test_subjects_are_chosen_and_iperf_is_left_out_where_it_is_missing() -> None:
    settings = DeliverySettings(orders=("block", "shard"))
    with_iperf = [subject.name for subject in make_subjects(settings, "/usr/bin/iperf3")]
    ours = [f"emlio-{order}{way}" for way in ("", "-rows", "-sealed") for order in ("block", "shard")]
    assert with_iperf == ["iperf3", "bare", *ours, "paper"]
    assert make_subjects(settings, None)[0].name == "bare"
    assert [subject.name for subject in make_subjects(DeliverySettings(subjects=("bare",)), None)] == ["bare"]
    keyed = DeliverySettings(subjects=("keyed",), orders=("none",))
    assert [subject.name for subject in make_subjects(keyed, None)] == ["emlio-none-keyed"]
    two = DeliverySettings(subjects=("emlio", "bare"), orders=("shard",), other=Path(__file__).parents[3])
    assert [subject.name for subject in make_subjects(two, None)] == ["emlio-shard", "emlio-shard@other", "bare"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["delivery", "--sizes", "1kB,fast"], "--sizes"),
        (["delivery", "--orders", "sorted"], "--orders"),
        (["delivery", "--subjects", "nfs"], "--subjects"),
        (["delivery", "--repeats", "0"], "--repeats"),
        (["disk", "--blocks", "5000"], "--blocks"),
        (["disk", "--depths", "0"], "--depths"),
        (["delivery", "--other", "/no/checkout"], "--other must hold"),
        (["costs", "--append"], "--append needs --json"),
        (["costs", "--only", "nothing"], "--only"),
    ],
)
def test_bad_values_are_named_and_exit_with_2(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert said in capsys.readouterr().err


def test_a_scenario_of_costs_prints_its_figures_and_appends_only_to_like_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    argv = ["costs", "--only", "plan,padding", "--quick", "--repeats", "1", "--json", str(path), "--append"]
    assert main(argv) == 0
    text = capsys.readouterr().out
    for order in ("global", "block", "shard", "none"):
        assert f"walk, {order}" in text
    assert "of random batches' padding, by length, ranks 8" in text
    assert main(argv) == 0
    results = read_results(path)
    assert len(results.figures[0].values) == 2
    assert all(value > 0 for figure in results.figures for value in figure.values)
    assert main([*argv, "--rtt", "10ms"]) == 2
    assert "only like runs" in capsys.readouterr().err


def test_a_missed_bound_exits_with_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def miss(settings: CommonSettings, world: World) -> Results:
        figure = Figure(name="too slow", unit="records/s", values=(1.0,), at_least=2.0)
        return Results(benchmark="costs", environment=read_environment(None), settings=(), figures=(figure,))

    monkeypatch.setitem(COMMANDS, "costs", replace(COMMANDS["costs"], run=miss))
    assert main(["costs"]) == 1
    captured = capsys.readouterr()
    assert "MISSED" in captured.out
    assert "too slow" in captured.err


def test_an_interruption_exits_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(settings: CommonSettings, world: World) -> Results:
        raise KeyboardInterrupt

    monkeypatch.setitem(COMMANDS, "costs", replace(COMMANDS["costs"], run=interrupt))
    assert main(["costs"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_defect_exits_with_70_also_after_the_results_were_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A missed bound is all that exits with 1."""

    def parts(results: Results) -> tuple[Part, ...]:
        raise ZeroDivisionError("no width")

    path = tmp_path / "decode.json"
    made = Results(benchmark="decode", environment=read_environment(None), settings=())
    broken = replace(COMMANDS["decode"], run=lambda settings, world: made, parts=parts)
    monkeypatch.setitem(COMMANDS, "decode", broken)
    assert main(["decode", "--json", str(path)]) == 70
    assert read_results(path) == made
    assert capsys.readouterr().err.endswith("ZeroDivisionError: no width\n")


@pytest.mark.parametrize("name", ["tune", "dial"])
def test_a_quick_run_says_that_its_figures_mean_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    made = Results(benchmark=name, environment=read_environment(None), settings=())
    monkeypatch.setitem(COMMANDS, name, replace(COMMANDS[name], run=lambda settings, world: made))
    for options, said in (([], False), (["--quick"], True)):
        assert main([name, *options]) == 0
        assert ("Its figures mean nothing." in capsys.readouterr().out) is said
