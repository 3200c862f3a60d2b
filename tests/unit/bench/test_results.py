"""Results as values with their world: merging, comparing, keeping, summaries, tables."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sample_race import ENVIRONMENT, sample_race

from emlio.errors import ConfigError
from emlio_bench.cli import main
from emlio_bench.delivery.report import cpu_s_per_gb, delivery_parts, doubts, draw_delivery, share, speed
from emlio_bench.delivery.run import other_figures
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.plot import png_bytes
from emlio_bench.harness.report import Part, Table, missed_bounds, text_page, write_report
from emlio_bench.harness.results import Figure, Results, Run, merge, read_results, run_of, write_results
from emlio_bench.harness.spread import spread


def sample(subject: str, number: int, gb_per_s: float, *, scenario: str = "100 kB", seconds: float = 2.0) -> Run:
    elapsed_ns = round(seconds * 1e9)
    ours = subject.startswith("emlio")
    measured = Measurement(
        payload_bytes=round(gb_per_s * elapsed_ns),
        records=1000 if ours else 0,
        elapsed_ns=elapsed_ns,
        sender_cpu_ns=elapsed_ns // 2,
        receiver_cpu_ns=elapsed_ns // 4,
        first_batch_ns=30_000_000 if ours else None,
        protection="aes-256-gcm" if ours else None,
    )
    return run_of(scenario, subject, number, 0, measured)


def results(*runs: Run, figures: tuple[Figure, ...] = ()) -> Results:
    return Results(
        benchmark="delivery", environment=ENVIRONMENT, settings=(("sizes", "100000"),), runs=runs, figures=figures
    )


def interleaved(*speeds: tuple[float, float, float]) -> Results:
    return results(
        *(
            sample(subject, number, speed)
            for number, of_round in enumerate(speeds)
            for subject, speed in zip(("iperf3", "bare", "emlio-global"), of_round, strict=True)
        )
    )


def test_a_ratio_is_of_neighbours_in_a_round_not_of_medians() -> None:
    # The machine slows down by four while the share stays a half: medians of speeds alone would not show that.
    runs = interleaved((4, 4, 2), (1, 1, 0.5), (2, 2, 1)).runs
    assert share(runs, "emlio-global", "bare", speed) == spread([0.5, 0.5, 0.5])
    assert share(runs, "bare", "iperf3", speed) == spread([1.0, 1.0, 1.0])
    assert share(runs, "iperf3", "bare", speed) is None
    assert share(interleaved((4, 2, 1), (4, 2, 0.5)).runs, "emlio-global", "bare", cpu_s_per_gb) == spread([2.0, 4.0])


def test_few_rounds_short_samples_and_impossible_shares_are_doubtful() -> None:
    found = " ".join(doubts(results(sample("bare", 0, 1.0, seconds=0.5), sample("emlio-global", 0, 2.0))))
    for word in ("only 1 round", "0.50 s", "200% of the bare pair"):
        assert word in found


def test_two_checkouts_are_compared_within_rounds() -> None:
    runs = [
        sample(name, place, of)
        for place, of_round in enumerate(((2.0, 1.0), (6.0, 4.0)))
        for name, of in zip(("emlio-global", "emlio-global@other"), of_round, strict=True)
    ]
    faster, cheaper = other_figures(runs)
    assert faster.values == (2.0, 1.5)
    assert cheaper.values == pytest.approx((0.5, 2 / 3))


def test_results_come_back_from_a_file_also_compressed_and_from_its_folder(tmp_path: Path) -> None:
    race = sample_race()
    for name in ("results.json", "a/results.json.gz"):
        write_results(race, tmp_path / name)
        assert read_results(tmp_path / name) == race
    assert read_results(tmp_path) == race
    assert (tmp_path / "a/results.json.gz").stat().st_size < (tmp_path / "results.json").stat().st_size / 5


def test_a_file_of_another_schema_or_of_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for text, said in (('{"schema": 3}', "got 3: measure again"), ("{}", "JSON of schema"), ("x", "JSON of schema")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=said):
            read_results(path)
    with pytest.raises(ConfigError, match="readable"):
        read_results(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="where files can be written"):
        write_results(results(), path / "below.json")


def test_like_runs_merge_and_their_rounds_follow_each_other() -> None:
    figure = Figure(name="speed", unit="MB/s", values=(1.0,))
    one = results(sample("bare", 0, 1.0), sample("bare", 1, 2.0), figures=(figure,))
    both = merge(one, results(sample("bare", 0, 3.0), figures=(replace(figure, values=(2.0,)),)))
    assert [run.round for run in both.runs] == [0, 1, 2]
    assert both.figures[0].values == (1.0, 2.0)
    for other, said in (
        (replace(one, settings=(("sizes", "1000"),)), "setting sizes '100000' and '1000'"),
        (replace(one, environment=replace(ENVIRONMENT, cores=4)), "cores 2 and 4"),
        (replace(one, figures=()), "figures"),
    ):
        with pytest.raises(ConfigError, match=said):
            merge(one, other)


def test_a_bound_is_of_the_median_or_of_every_value() -> None:
    figures = [
        Figure(name="median", unit="", values=(1.0, 2.0, 9.0), at_most=2.0),
        Figure(name="every", unit="", values=(1.0, 2.0, 9.0), at_most=2.0, every=True),
        Figure(name="least", unit="", values=(1.0,), at_least=2.0),
    ]
    assert missed_bounds(figures) == ("every", "least")
    with pytest.raises(ConfigError, match="at least one value"):
        Figure(name="none", unit="", values=())


def test_one_report_is_for_a_terminal_and_as_markdown_with_its_results_beside(tmp_path: Path) -> None:
    table = Table(title="Goals", header=("system", "a|b", ""), rows=(("<b>*x*", "1", ""), ("y", "22", "")))
    parts = (Part(text="a_word"), Part(heading="Goals", points=("one",), tables=(table,)), Part())
    assert text_page(parts) == "a_word\n\nGoals:\n  one\n\nsystem  a|b\n-----------\n<b>*x*    1\ny        22"
    assert write_report("T", parts, results(), tmp_path) == "report.md, results.json"
    assert (tmp_path / "report.md").read_text().splitlines() == [
        "# T", "", "a\\_word", "", "## Goals", "", "* one", "",
        "| system | a|b |  |", "| :-- | --: | --: |", "| &lt;b>\\*x\\* | 1 |  |", "| y | 22 |  |",
    ]  # fmt: skip
    assert read_results(tmp_path) == results()


def test_the_tables_of_a_delivery_name_its_subjects_and_what_protected_them() -> None:
    found = interleaved((4, 2, 1))
    lines = text_page(delivery_parts(found)).splitlines()
    line = next(line for line in lines if line.startswith("EMLIO, global order, verified"))
    assert "25 % (25..25)" in line
    assert line.endswith("aes-256-gcm")
    assert png_bytes(draw_delivery(found)).startswith(b"\x89PNG")


def test_a_report_is_made_again_from_the_command_line(tmp_path: Path) -> None:
    write_results(sample_race(), tmp_path / "a" / "results.json")
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "out")]) == 0
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"report.md", "figures.png", "results.json"}
    (tmp_path / "c.json").write_text(json.dumps({"schema": 1}))
    assert main(["report", str(tmp_path / "c.json"), str(tmp_path / "out")]) == 2


def test_a_reader_that_goes_ends_the_command_without_a_traceback(tmp_path: Path) -> None:
    write_results(interleaved((4, 2, 1)), tmp_path / "a.json")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        ended = subprocess.run(
            [sys.executable, "-m", "emlio_bench.cli", "report", tmp_path / "a.json", tmp_path / "out"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert (ended.returncode, ended.stderr) == (141, b"")
