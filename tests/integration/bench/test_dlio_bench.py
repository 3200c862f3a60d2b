"""`emlio-bench dlio` with DLIO itself, two ranks and little data."""

from pathlib import Path

import pytest

from emlio_bench.cli import main
from emlio_bench.dlio.job import ENVIRONMENT
from emlio_bench.harness.results import read_results
from emlio_bench.link import emulated
from emlio_bench.race.needs.environments import cache_folder, environment_python


@pytest.mark.slow
def test_dlio_takes_each_step_with_our_loader_and_every_record_is_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if environment_python(ENVIRONMENT, cache_folder(None)) is None:
        pytest.skip(f"the environment {ENVIRONMENT} is not made: emlio-bench dlio makes it")
    if reason := emulated.why_not():
        pytest.skip(f"an emulated link {reason}")
    path, ranks, steps, epochs, batch = tmp_path / "r.json", 2, 3, 2, 7
    argv = ["dlio", "--quick", "--workload", "unet3d", "--accelerator", "b200", "--ranks", str(ranks), "--rtt", "1ms"]
    argv += ["--steps", str(steps), "--epochs", str(epochs), "--subjects", "no-io,emlio", "--barrier", "2"]
    assert main([*argv, "--json", str(path)]) == 0
    assert "not an MLPerf result" in capsys.readouterr().out
    runs = {run.subject: run for run in read_results(path).runs}
    assert [run.failure for run in runs.values()] == [None, None]
    assert runs["emlio"].value("verified records") == steps * batch * ranks * epochs
    assert 0 < runs["emlio"].value("AU, %") <= 100
    assert "verified records" not in runs["no-io"].values
    assert main(["report", str(path), str(tmp_path / "report")]) == 0
