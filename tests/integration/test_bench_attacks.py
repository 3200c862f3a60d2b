"""A run of attacks with real processes, on little data."""

from pathlib import Path

import pytest

from emlio_bench.attacks.attackers import ATTACKS
from emlio_bench.attacks.plot import plot_attacks
from emlio_bench.attacks.rank import Finished
from emlio_bench.attacks.stage import Besieged, opened_store
from emlio_bench.cli import main
from emlio_bench.harness.results import read_results
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import run_python

BATCH = 10


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data") / "small"
    make_dataset(directory, records=2000, shards=2, payload=2000)
    return directory


@pytest.mark.slow  # the attacks themselves are tested each time, in tests/e2e/attacks
@pytest.mark.parametrize(
    "attacks",
    [
        pytest.param(("nothing", "crowd", "pings"), id="three"),
        pytest.param(tuple(ATTACKS), id="all", marks=pytest.mark.slow),
    ],
)
def test_a_rank_reads_at_its_pace_while_each_attack_does_what_it_says(data: Path, attacks: tuple[str, ...]) -> None:
    did: dict[str, float] = {}
    with opened_store(data) as store, Besieged(store, store.rank_order(BATCH, 10_000_000)) as besieged:
        besieged.reads()
        quiet = besieged.quiet(0.3)
        assert not quiet.attacked
        assert 0 < quiet.records_per_s < 2000, "a batch of 10 each 10 ms"
        for name in attacks:
            span = besieged.attacked(name, 0.3, 0.0)
            assert span.attacked
            assert span.attacker_s < 0.3
            assert span.daemon_bytes > 1 << 20
            did[name] = span.acts_per_s
        ended = besieged.end()
    assert isinstance(ended, Finished)
    assert (ended.reopened, ended.lost) == (0, 0)
    assert did.pop("nothing") == 0
    assert did.pop("crowd") >= 0, "they are hung up on after seconds only"
    assert all(did.values()), did


@pytest.mark.slow
def test_a_quick_run_tells_all_of_each_attack_and_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    argv = ["attacks", "--quick", "--attacks", "nothing,pings", "--data", str(tmp_path / "data"), "--json", str(path)]
    # What so short spans say of speed is chance; a missed bound is 1.
    assert main(argv) in (0, 1)
    text = capsys.readouterr().out
    assert ATTACKS["pings"].title in text
    assert "only 1 span(s) of attack" in text
    results = read_results(path)
    found = {figure.name: figure for figure in results.figures}
    for name in ("nothing", "pings"):
        kept = found[f"{ATTACKS[name].title}: speed kept"]
        assert kept.values[0] > 0
        assert (kept.at_least is None) == (name == "nothing")
    assert found["streams that were opened again, or daemons taken for lost"].values == (0.0, 0.0)
    # In a process of its own: matplotlib keeps font files open for as long as one lives.
    script = (
        f"import sys; from pathlib import Path; from {plot_attacks.__module__} import plot_attacks; "
        "from emlio_bench.harness.results import read_results; "
        "plot_attacks(read_results(Path(sys.argv[1])), Path(sys.argv[2]))"
    )
    run_python("-c", script, path, tmp_path / "run.png", timeout_s=120.0)
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
