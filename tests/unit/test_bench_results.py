import sys
from dataclasses import replace
from pathlib import Path

import pytest

from emlio.errors import ConfigError
from emlio_bench.harness.environment import Environment, read_environment
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.report import missed_bounds, render
from emlio_bench.harness.results import Figure, Results, Run, merge, read_results, write_results
from emlio_bench.harness.spread import spread
from emlio_bench.harness.summary import doubts, summarise
from emlio_bench.processes.child import Child

WORLD = Environment(
    kernel="6.1",
    cpu="a processor",
    cores=2,
    memory_bytes=8_000_000_000,
    python="CPython 3.11",
    pyzmq="27",
    libzmq="4.3.5",
    numpy="2",
    iperf3=None,
    emlio="0.1.0",
    commit="abc",
    tcp_wmem="4096 16384 4194304",
    tcp_rmem=None,
    tcp_congestion_control="cubic",
)


def sample(
    subject: str, round_number: int, gb_per_s: float, *, scenario: str = "100 kB", seconds: float = 2.0
) -> Run:
    elapsed_ns = round(seconds * 1e9)
    ours = subject.startswith("emlio")
    return Run(
        scenario=scenario,
        subject=subject,
        round=round_number,
        place=0,
        measured=Measurement(
            payload_bytes=round(gb_per_s * elapsed_ns),
            records=1000 if ours else 0,
            elapsed_ns=elapsed_ns,
            sender_cpu_ns=elapsed_ns // 2,
            receiver_cpu_ns=elapsed_ns // 4,
            first_batch_ns=30_000_000 if ours else None,
        ),
    )


def run(*samples: Run, figures: tuple[Figure, ...] = ()) -> Results:
    return Results(
        benchmark="delivery", environment=WORLD, settings=(("sizes", "100000"),), samples=samples, figures=figures
    )


def interleaved(speeds: list[tuple[float, float, float]]) -> Results:
    return run(
        *(
            sample(subject, number, speed)
            for number, round_speeds in enumerate(speeds)
            for subject, speed in zip(("iperf3", "bare", "emlio-global"), round_speeds, strict=True)
        )
    )


def test_a_ratio_is_of_neighbours_in_a_round_not_of_medians() -> None:
    # The machine slows down by four while the share stays a half: medians of speeds alone would not show that.
    rows = {row.subject: row for row in summarise(interleaved([(4, 4, 2), (1, 1, 0.5), (2, 2, 1)]))}
    ratio = rows["emlio-global"].of_bare
    assert ratio is not None
    assert (ratio.median, ratio.least, ratio.most) == (0.5, 0.5, 0.5)
    assert rows["emlio-global"].bytes_per_s.width == pytest.approx(1.5)


def test_a_limit_is_a_part_of_nothing_and_the_bare_pair_of_the_limit() -> None:
    rows = {row.subject: row for row in summarise(interleaved([(4, 2, 1)]))}
    assert rows["iperf3"].of_limit is None
    assert rows["iperf3"].of_bare is None
    assert rows["bare"].of_bare is None
    assert rows["bare"].of_limit == spread([0.5])
    assert rows["emlio-global"].of_limit == spread([0.25])


def test_processor_time_is_per_gigabyte_and_by_side() -> None:
    row = summarise(run(sample("emlio-global", 0, 0.5)))[0]
    assert row.sender_s_per_gb.median == pytest.approx(1.0)
    assert row.receiver_s_per_gb.median == pytest.approx(0.5)
    assert row.records_per_s == spread([500.0])
    assert row.first_batch_ms == spread([30.0])


def test_processor_time_of_both_sides_is_compared_with_the_bare_pairs() -> None:
    rows = summarise(interleaved([(4, 2, 1), (4, 2, 0.5)]))
    assert [row.cpu_of_bare for row in rows[:2]] == [None, None]
    assert rows[2].cpu_of_bare == spread([2.0, 4.0])
    assert "3.00 x (2.00..4.00)" in render(interleaved([(4, 2, 1), (4, 2, 0.5)]))


def test_a_table_says_what_data_were_protected_by() -> None:
    clear = sample("emlio-global", 0, 1.0)
    assert "protected by" not in render(run(clear))
    sealed = replace(clear, measured=replace(clear.measured, protection="aes-256-gcm"))
    line = next(line for line in render(run(sealed)).splitlines() if line.startswith("EMLIO,"))
    assert line.endswith("  aes-256-gcm")


def test_a_round_without_the_other_subject_gives_no_ratio() -> None:
    rows = summarise(run(sample("bare", 0, 2.0), sample("emlio-global", 0, 1.0), sample("emlio-global", 1, 9.0)))
    assert rows[1].of_bare == spread([0.5])


def test_scenarios_keep_to_themselves() -> None:
    rows = summarise(run(sample("bare", 0, 2.0), sample("emlio-global", 0, 1.0, scenario="1 kB")))
    assert [(row.scenario, row.of_bare) for row in rows] == [("100 kB", None), ("1 kB", None)]


def test_steady_figures_raise_no_doubt() -> None:
    assert doubts(summarise(interleaved([(4, 3, 2)] * 5))) == ()


def test_few_rounds_short_samples_and_wandering_ratios_are_doubted() -> None:
    assert "only 1 round(s)" in doubts(summarise(interleaved([(4, 3, 2)])))[0]
    short = run(*(sample("bare", number, 1.0, seconds=0.2) for number in range(5)))
    assert "0.20 s" in doubts(summarise(short))[0]
    wandering = doubts(summarise(interleaved([(4, 3, 2), (4, 3, 1), (4, 3, 2), (4, 3, 2), (4, 3, 2)])))
    assert [doubt.split(":")[0] for doubt in wandering] == ["emlio-global, 100 kB"] * 2


def test_faster_than_the_ceiling_is_doubted() -> None:
    assert any("more than anything" in doubt for doubt in doubts(summarise(interleaved([(4, 3, 3.5)] * 5))))


def test_nothing_measured_raises_no_doubt() -> None:
    assert doubts(()) == ()


def test_a_table_names_subjects_and_leaves_out_columns_nobody_filled() -> None:
    text = render(interleaved([(4, 2, 1)] * 5))
    assert "of iperf3" in text
    assert "EMLIO, global order, verified  1.00 (1.00..1.00)" in text
    assert "25 % (25..25)" in text
    assert "Do not believe" not in text
    assert "first batch" not in render(run(*(sample("bare", number, 1.0) for number in range(5))))


@pytest.mark.parametrize(
    ("figure", "kept"),
    [
        (Figure(name="f", unit="MiB", values=(1.0, 9.0, 2.0), at_most=5.0), True),
        (Figure(name="f", unit="MiB", values=(1.0, 9.0, 2.0), at_most=5.0, every=True), False),
        (Figure(name="f", unit="records/s", values=(1.0, 9.0, 8.0), at_least=5.0), True),
        (Figure(name="f", unit="records/s", values=(1.0, 2.0, 8.0), at_least=5.0), False),
    ],
)
def test_bounds_are_kept_by_the_median_or_by_every_value(figure: Figure, kept: bool) -> None:
    assert missed_bounds([figure]) == (() if kept else ("f",))
    assert ("MISSED" in render(run(figures=(figure,)))) is not kept


def test_a_figure_without_values_cannot_be() -> None:
    with pytest.raises(ConfigError, match="at least one value"):
        Figure(name="f", unit="ms", values=())


def test_results_survive_json(tmp_path: Path) -> None:
    results = replace(
        interleaved([(4, 2, 1)]), figures=(Figure(name="f", unit="ms", values=(1.5,), at_most=2.0, note="n"),)
    )
    write_results(results, tmp_path / "new" / "r.json")
    assert read_results(tmp_path / "new" / "r.json") == results


def test_results_of_another_schema_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write_results(run(sample("bare", 0, 1.0)), path)
    path.write_text(path.read_text().replace('"schema": 3', '"schema": 99'))
    with pytest.raises(ConfigError, match="schema 3, got 99"):
        read_results(path)
    path.write_text("[]")
    with pytest.raises(ConfigError, match="must be JSON"):
        read_results(path)
    with pytest.raises(ConfigError, match="readable"):
        read_results(tmp_path / "absent.json")


def test_like_runs_merge_and_later_rounds_stay_apart() -> None:
    figure = Figure(name="f", unit="ms", values=(1.0,))
    first = replace(interleaved([(4, 2, 1), (4, 2, 1)]), figures=(figure,))
    second = replace(interleaved([(8, 8, 8)]), figures=(replace(figure, values=(3.0,)),))
    merged = merge(first, second)
    assert [one.round for one in merged.samples] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert merged.figures[0].values == (1.0, 3.0)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (replace(run(), environment=replace(WORLD, kernel="6.2")), "kernel '6.1' and '6.2'"),
        (replace(run(), environment=replace(WORLD, commit="def+")), "commit 'abc' and 'def"),
        (replace(run(), benchmark="start"), "benchmark 'delivery' and 'start'"),
        (replace(run(), settings=(("sizes", "1"),)), "setting sizes '100000' and '1'"),
        (replace(run(), figures=(Figure(name="f", unit="ms", values=(1.0,)),)), "figures"),
    ],
)
def test_unlike_runs_do_not_merge_and_the_error_says_why(other: Results, said: str) -> None:
    with pytest.raises(ConfigError, match=r"only like runs") as caught:
        merge(run(), other)
    assert said in str(caught.value)


def test_the_environment_says_what_it_found() -> None:
    world = read_environment(None)
    assert world.cores >= 1
    assert world.libzmq.count(".") == 2
    assert world.iperf3 is None
    assert read_environment("/no/such/iperf3").iperf3 is None


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    results, picture = tmp_path / "r.json", tmp_path / "new" / "r.png"
    write_results(interleaved([(4, 2, 1), (3, 2, 1)]), results)
    # In a process of its own: matplotlib keeps font files open for as long as one lives.
    program = (
        "import sys; from pathlib import Path; from emlio_bench.delivery import plot; from emlio_bench.harness import results; "
        "plot.plot_delivery(results.read_results(Path(sys.argv[1])), Path(sys.argv[2]))"
    )
    with Child("a picture", [sys.executable, "-c", program, str(results), str(picture)]) as child:
        child.rest(60)
    assert picture.read_bytes().startswith(b"\x89PNG")
