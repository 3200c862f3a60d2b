"""`emlio-bench tune` with few settings: a real link that changes, a daemon, and ranks that are set while they read."""

from pathlib import Path

import pytest

from emlio_bench.cli import main
from emlio_bench.harness.results import by_name, read_results
from emlio_bench.link.emulated import why_not
from emlio_bench.tuning.report import GRID_SUBJECT
from emlio_bench.tuning.rows import read_runs


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_settings_change_at_random_while_a_rank_reads_and_what_it_saw_is_kept(tmp_path: Path) -> None:
    if (reason := why_not()) is not None:
        pytest.skip(f"an emulated link {reason}")
    out = tmp_path / "data.jsonl"
    assert main(["tune-model", "collect", "--out", str(out), "--minutes", "0.05"]) == 0
    (run, *_) = read_runs(out)
    assert run.head.environment.endswith(("a user who takes all", "MB/s"))
    assert sum(line.tuning is not None for line in run.lines) >= 3
    assert all(line.snapshot is not None for line in run.lines)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_all_contenders_and_the_best_of_the_grid_run_where_a_path_stays_and_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if (reason := why_not()) is not None:
        pytest.skip(f"an emulated link {reason}")
    out = tmp_path / "tune.json"
    words = ["tune", "--quick", "--places", "10ms-1G,rival,cores", "--contenders", "auto,AIMD", "--json", str(out)]
    assert main(words) == 0
    assert "seconds to 95 % of the oracle" in capsys.readouterr().out
    results = read_results(out)
    assert not [run.failure for run in results.runs if run.failure is not None]
    walked = [run for run in results.runs if run.subject == GRID_SUBJECT]
    assert [(run.scenario, run.setting) for run in walked] == [
        ("10ms-1G", "0"),
        *((place, stage) for place in ("rival", "cores") for stage in "012"),
    ]
    assert all(len(run.values) == 12 for run in walked), "six settings, each with its rate and its cost"
    assert all(value.value > 0 for run in walked for value in run.values.values())
    assert {run.subject for run in results.runs} >= {"auto", "AIMD"}
    assert by_name(results)["mean regret, auto"].values[0] < 1
