"""The benchmarks with real processes, on little data."""

from pathlib import Path

import pytest

from emlio.errors import TransportError
from emlio.wire.seal import CIPHERS
from emlio_bench.cli import main
from emlio_bench.harness.data import make_data
from emlio_bench.harness.results import read_results
from emlio_bench.harness.scenario import QUICK_WINDOW, delivery_scenario
from emlio_bench.harness.sides import WAYS
from emlio_bench.subjects.loader import Loader


@pytest.mark.slow
def test_a_quick_delivery_measures_every_subject_and_writes_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.json"
    argv = ["delivery", "--quick", "--sizes", "100kB", "--repeats", "1"]
    argv += ["--subjects", "limit,bare,emlio,rows,views,sealed,paper"]
    assert main([*argv, "--json", str(path), "--data", str(tmp_path / "data")]) == 0
    text = capsys.readouterr().out
    assert "100 kB records" in text
    assert "only 1 round(s)" in text
    runs = {run.subject: run for run in read_results(path).runs}
    ours = [f"emlio-{order}{way}" for way in ("", "-rows", "-views", "-sealed") for order in ("global", "shard")]
    assert {"bare", *ours, "paper"} <= set(runs)
    for run in runs.values():
        assert run.value("bytes/s") > 0
        assert run.value("sender, CPU s/GB") > 0
    for name in ours:
        assert runs[name].value("bytes/s") == pytest.approx(runs[name].value("records/s") * 100_000)
        assert runs[name].value("first batch, ms") > 0
    assert runs["emlio-shard"].words["protection"] == "clear"
    assert runs["emlio-shard-sealed"].words["protection"] in CIPHERS
    assert "sealed / clear, 100 kB records, shard order" in text
    assert "one core opens, chacha20-poly1305" in text
    assert "EMLIO, shard order, verified, each record sliced" in text
    assert "data in memory, 100 kB" in text


@pytest.mark.slow
def test_a_sample_protected_otherwise_than_it_says_is_no_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = delivery_scenario(10_000, 100_000)
    directory = make_data(scenario.data, tmp_path, progress=False)
    keyed = Loader(order="shard", way="keyed").measure(scenario, directory, QUICK_WINDOW)
    assert keyed.protection == "clear"
    monkeypatch.setitem(WAYS, "sealed", ("off", CIPHERS))
    with pytest.raises(TransportError, match=r"emlio-shard-sealed must protect data by aes-256-gcm or .*, got clear"):
        Loader(order="shard", way="sealed").measure(scenario, directory, QUICK_WINDOW)


@pytest.mark.slow
def test_the_other_benchmarks_run_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Whether a busy machine is fast enough is not a test's business.
    argv = ["costs", "--quick", "--only", "start,pause,examples", "--repeats", "1", "--data", str(tmp_path)]
    assert main(argv) in (0, 1)
    text = capsys.readouterr().out
    for line in (
        "loopback, first: first batch",
        "rank, more during it",
        "daemon, more after it",
        "Examples to one rank",
    ):
        assert line in text
