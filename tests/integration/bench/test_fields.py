"""The benchmarks of formats and mixtures with real daemons, on little data; other loaders take part where they are installed."""

from pathlib import Path

import pytest

from emlio_bench.cli import main
from emlio_bench.harness.results import read_results
from emlio_bench.link.emulated import why_not

pytestmark = pytest.mark.slow


FEW = {"formats": ["--formats", "tfrecord,files"], "mixtures": ["--mixes", "once", "--subjects", "emlio"]}


@pytest.mark.parametrize("name", FEW)
def test_each_run_of_ours_is_exact_and_reported(tmp_path: Path, name: str) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"an emulated link {reason}")
    out = tmp_path / "out"
    argv = [
        name,
        *FEW[name],
        "--tiny",
        "--no-install",
        "--rounds",
        "1",
        "--out",
        str(out),
        "--cache",
        str(tmp_path / "cache"),
    ]
    assert main(argv) == 0
    runs = read_results(out).runs
    assert runs
    assert all(run.failure is None for run in runs)
    assert (out / "report.md").read_text(encoding="utf-8").startswith(f"# EMLIO: {name}")
    assert (out / "figures.png").is_file()
