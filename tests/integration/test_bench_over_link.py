"""Benchmarks of a daemon and a rank over an emulated link, quickly, also of two checkouts in turns."""

from pathlib import Path

import pytest

import emlio
from emlio_bench.cli import main
from emlio_bench.harness.results import read_results
from emlio_bench.link.emulated import why_not

THIS_CHECKOUT = Path(emlio.__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def link() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"an emulated link {reason}")


@pytest.mark.slow
def test_a_start_takes_round_trips_in_both_modes_and_of_both_checkouts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "start.json"
    argv = ["start", "--quick", "--rtt", "20ms", "--other", str(THIS_CHECKOUT), "--json", str(path)]
    assert main([*argv, "--data", str(tmp_path)]) == 0
    assert "first batch, this / other" in capsys.readouterr().out
    figures = {figure.name: figure.values for figure in read_results(path).figures}
    for mode in ("first", "remembered"):
        for which in ("", ", other checkout"):
            (first_ms,) = figures[f"20 ms, {mode}: first batch{which}"]
            assert first_ms > figures[f"20 ms, {mode}: constructor{which}"][0] > 0
            assert first_ms > 20
        assert figures[f"20 ms, {mode}: first batch, this / other"][0] > 0


def test_a_start_with_keys_is_of_sealed_payloads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["start", "--quick", "--rtt", "1ms", "--modes", "first", "--keys", "--data", str(tmp_path)]
    assert main(argv) == 0
    text = capsys.readouterr().out
    assert "payloads sealed" in text
    assert "remembered: " not in text


@pytest.mark.parametrize(
    "rtts", [pytest.param(("5 ms",), id="one"), pytest.param(("0 ms", "5 ms"), id="two", marks=pytest.mark.slow)]
)
def test_a_delivery_over_a_link_compares_both_checkouts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rtts: tuple[str, ...]
) -> None:
    path = tmp_path / "delivery.json"
    argv = [
        "delivery",
        "--quick",
        "--rtts",
        ",".join(rtt.replace(" ", "") for rtt in rtts),
        "--other",
        str(THIS_CHECKOUT),
        "--repeats",
        "1",
        "--sizes",
        "100kB",
    ]
    argv += ["--subjects", "emlio", "--orders", "global", "--json", str(path), "--data", str(tmp_path)]
    assert main(argv) == 0
    assert "EMLIO, global order, verified, other checkout" in capsys.readouterr().out
    results = read_results(path)
    names = {(sample.scenario, sample.subject) for sample in results.samples}
    assert names == {(f"{rtt}, 100 kB", who) for rtt in rtts for who in ("emlio-global", "emlio-global@other")}
    found = [figure.name.partition(",")[0] for figure in results.figures]
    assert sorted(found) == sorted(["data in memory", "throughput", "CPU of a byte"] * len(rtts))
    assert all(value > 0 for figure in results.figures for value in figure.values)


@pytest.mark.slow
def test_memory_of_a_slow_rank_is_measured_for_each_number_of_lanes(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    argv = ["memory", "--quick", "--rtt", "1ms", "--lanes", "1,3", "--rate", "50MB", "--json", str(path)]
    assert main([*argv, "--data", str(tmp_path)]) == 0
    figures = {figure.name: figure.values for figure in read_results(path).figures}
    for lanes in (1, 3):
        at = f"1 ms, {lanes} lanes"
        assert figures[f"{at}: lanes in use"] == (lanes,)
        assert 10 < figures[f"{at}: after imports"][0] < figures[f"{at}: peak"][0]
        # No more than it takes; the machine may be slower.
        assert 0 < figures[f"{at}: the user had"][0] < 55
