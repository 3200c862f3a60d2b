"""The benchmarks with real processes, on little data."""

from pathlib import Path

import pytest

from emlio.benchmarks.cli import main
from emlio.benchmarks.delivery import make_subjects
from emlio.benchmarks.results import read_results
from emlio.benchmarks.scenario import QUICK_WINDOW, delivery_scenario
from emlio.benchmarks.settings import DeliverySettings
from emlio.benchmarks.sockets import Sockets


def test_a_quick_delivery_measures_every_subject_and_writes_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("msgpack", reason='the paper\'s way needs the extra "bench"')
    path = tmp_path / "r.json"
    argv = ["delivery", "--quick", "--sizes", "100kB", "--repeats", "1"]
    assert main([*argv, "--json", str(path), "--data", str(tmp_path / "data")]) == 0
    text = capsys.readouterr().out
    assert "100 kB records" in text
    assert "only 1 round(s)" in text
    samples = {sample.subject: sample.measured for sample in read_results(path).samples}
    assert len(samples) == 5
    for name in ("bare", "emlio-global", "emlio-shard", "paper"):
        measured = samples[name]
        assert measured.payload_bytes >= QUICK_WINDOW.sample_bytes or measured.elapsed_ns >= QUICK_WINDOW.most_ns
        assert measured.sender_cpu_ns > 0
        assert measured.receiver_cpu_ns > 0
    for name in ("emlio-global", "emlio-shard"):
        assert samples[name].payload_bytes == samples[name].records * 100_000
        assert (samples[name].first_batch_ns or 0) > 0


def test_plain_sockets_stand_in_where_iperf_is_missing(tmp_path: Path) -> None:
    subject = make_subjects(DeliverySettings(subjects=("limit",)), None)[0]
    assert isinstance(subject, Sockets)
    measured = subject.measure(delivery_scenario(1000, 1000), tmp_path, QUICK_WINDOW)
    assert measured.payload_bytes >= QUICK_WINDOW.sample_bytes
    assert measured.sender_cpu_ns > 0


def test_the_other_benchmarks_run_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--quick", "--data", str(tmp_path)]
    assert main(["start", "--repeats", "1", *data]) == 0
    assert main(["memory", "--pause", "100ms", *data]) == 0
    # Whether a busy machine is fast enough is not a test's business.
    assert main(["examples", "--repeats", "1", "--orders", "shard", *data]) in (0, 1)
    text = capsys.readouterr().out
    for line in ("constructor to first batch", "rank, more during it", "daemon, more after it", "Examples to one rank"):
        assert line in text
