"""Decoding measured with real processes, on little data."""

from pathlib import Path

import pytest

from emlio_bench.cli import main
from emlio_bench.decode.subjects import DECODERS, is_installed
from emlio_bench.harness.results import read_results

_MISSING = [module for module in ("nvidia.dali", "torch", "PIL") if not is_installed(module)]


_TWO = ("dali-tfrecord", "emlio-daemon")


@pytest.mark.slow
@pytest.mark.skipif(bool(_MISSING), reason=f"needs {', '.join(_MISSING)}")
@pytest.mark.parametrize(
    ("subjects", "lines"),
    [
        pytest.param(_TWO, (), id="two"),
        pytest.param(
            tuple(DECODERS),
            ("images/s, emlio-local / dali-tfrecord", "CPU added, threads-daemon", "CPU, threads-local / dataloader"),
            id="all",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_quick_run_measures_every_subject_and_writes_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], subjects: tuple[str, ...], lines: tuple[str, ...]
) -> None:
    path = tmp_path / "r.json"
    argv = ["decode", "--quick", "--repeats", "1", "--json", str(path), "--subjects", ",".join(subjects)]
    # Whether a busy machine keeps the bounds is not a test's business.
    assert main([*argv, "--data", str(tmp_path / "data")]) in (0, 1)
    text = capsys.readouterr().out
    for line in ("images/s, emlio-daemon / dali-tfrecord", "only 1 round(s)", *lines):
        assert line in text
    runs = {run.subject: run for run in read_results(path).runs}
    assert sorted(runs) == sorted(subjects)
    for run in runs.values():
        assert run.value("images/s") > 0
        assert run.value("CPU, s/1000 images") > 0
