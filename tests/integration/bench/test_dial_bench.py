"""`emlio-bench dial --quick`: all patterns, all contenders, and the kernels by the loader, on a real disk."""

from pathlib import Path

import pytest

from emlio_bench.cli import main
from emlio_bench.dial.patterns import PATTERNS
from emlio_bench.dial.report import GRID, LOADER, OPTIMUM
from emlio_bench.harness.results import read_results


@pytest.mark.slow
def test_all_tables_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "dial.json"
    assert main(["dial", "--quick", "--json", str(out)]) == 0
    page = capsys.readouterr().out
    assert [title for title in ("Table II", "Figure 3: DLIO's kernels by emlio.aio", "Table III") if title in page]
    results = read_results(out)
    for name in PATTERNS:
        runs = [run for run in results.runs if run.scenario == name]
        assert {run.subject for run in runs} == {GRID, OPTIMUM, "default", "Lustre's", "small", "DIAL", "ours"}
        assert all(run.value("bytes/s") > 0 for run in runs)
    loaders = [run for run in results.runs if run.scenario.startswith(LOADER)]
    assert {run.subject for run in loaders} >= {"the paper's", "auto"}
    assert not [run.failure for run in results.runs if run.failure is not None]
    assert main(["report", str(out), str(tmp_path / "report")]) == 0
