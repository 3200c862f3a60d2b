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
    samples = {sample.subject: sample.measured for sample in read_results(path).samples}
    assert sorted(samples) == sorted(subjects)
    for name, measured in samples.items():
        assert measured.records >= 96
        assert measured.receiver_cpu_ns > 0
        # A daemon may have sent all of so few records before the clock ran; then it has nothing left to do.
        assert measured.sender_cpu_ns == 0 or DECODERS[name].has_daemon
    assert any(measured.sender_cpu_ns > 0 for measured in samples.values())
