"""The all-reduce beside a loader with real processes, by Gloo on the processor."""

from pathlib import Path

import pytest

from emlio_bench.cli import main
from emlio_bench.decode.subjects import is_installed
from emlio_bench.harness.results import read_results


@pytest.mark.slow
@pytest.mark.skipif(not is_installed("torch"), reason="needs PyTorch")
def test_a_quick_run_measures_both_alone_and_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    assert main(["allreduce", "--quick", "--device", "cpu", "--json", str(path), "--data", str(tmp_path / "data")]) == 0
    assert "shows that the benchmark works, and nothing about NCCL" in capsys.readouterr().out
    figures = {figure.name: figure.values for figure in read_results(path).figures}
    for name in ("loader alone", "loader beside the all-reduce", "all-reduce alone", "all-reduce beside the loader"):
        assert all(value > 0 for value in figures[name]), name
