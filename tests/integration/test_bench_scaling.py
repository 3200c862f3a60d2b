"""`emlio-bench scaling`, quickly: real daemons behind lines of their own, and what they are given to hold."""

from pathlib import Path

import pytest

from emlio.errors import DatasetError
from emlio.index.opening import open_dataset
from emlio_bench.cli import main
from emlio_bench.harness.data import make_data, shard_paths, split_evenly, split_shards
from emlio_bench.harness.plot import blank_figure, png_bytes
from emlio_bench.harness.results import read_results
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.link.kinds.emulated import why_not
from emlio_bench.scaling.figures import aggregate_name, ratio_name
from emlio_bench.scaling.run import shards_for

RTT_NS = 1_000_000


@pytest.fixture(scope="module")
def fonts() -> None:
    """matplotlib keeps font files open for as long as a process lives: from here on they are no test's."""
    png_bytes(blank_figure(3, 2)[0])


def test_a_split_dataset_has_each_shard_in_one_part(tmp_path: Path) -> None:
    directory = make_data(DataSpec(kind="opaque", record_bytes=100_000, records=200), tmp_path, progress=False)
    whole = [path.name for path in shard_paths(directory)]
    for _ in range(2):  # the second time they are there
        parts = split_shards(directory, 3)
        held = [[path.name for path in shard_paths(part)] for part in parts]
        assert sorted(name for names in held for name in names) == whole
        assert max(map(len, held)) - min(map(len, held)) <= 1
    with pytest.raises(DatasetError, match="a shard for each part"):
        split_shards(directory, len(whole) + 1)


@pytest.mark.parametrize("shards", [1, 6, 16])
def test_a_dataset_lies_in_as_many_shards_as_asked_for(tmp_path: Path, shards: int) -> None:
    spec = DataSpec(kind="opaque", record_bytes=100_000, records=192, shards=shards)
    assert len(shard_paths(make_data(spec, tmp_path, progress=False))) == shards


def test_parts_that_must_be_even_are_or_are_refused(tmp_path: Path) -> None:
    spec = DataSpec(kind="opaque", record_bytes=100_000, records=192, shards=12)
    directory = make_data(spec, tmp_path, progress=False)
    for count in (1, 2, 3, 4):
        for part in split_evenly(directory, count):
            with open_dataset("part", part) as dataset:
                assert dataset.records == 192 // count
    with pytest.raises(DatasetError, match="must hold as much as each other to 1%, they have 3,"):
        split_evenly(directory, 5)


@pytest.mark.parametrize(("daemons", "shards"), [((1, 2, 4), 16), ((1, 3), 18), ((1, 5, 7), 35), ((1,), 16)])
def test_each_number_of_daemons_can_have_equally_many_shards(daemons: tuple[int, ...], shards: int) -> None:
    assert shards_for(daemons) == shards
    assert all(shards % count == 0 for count in daemons)


@pytest.mark.slow
@pytest.mark.usefixtures("fonts")
def test_two_daemons_behind_lines_of_their_own_feed_three_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"an emulated link {reason}")
    path, picture = tmp_path / "scaling.json", tmp_path / "scaling.png"
    argv = ["scaling", "--quick", "--rtts", "1ms", "--lanes", "1", "--json", str(path)]
    assert main([*argv, "--plot", str(picture)]) == 0
    assert "1 ms: 2 daemons over 2 x one" in capsys.readouterr().out
    results = read_results(path)
    figures = {figure.name: figure.values for figure in results.figures}
    # A line carries 0.4 Gbit/s; what a batch brings at the edges of so short a sample is half as much again at most.
    assert 0.05 < figures[aggregate_name(RTT_NS, 1)][0] < 0.6
    assert 0.3 < figures[ratio_name(RTT_NS, 2)][0] < 3
    assert dict(results.settings)["lanes"] == "1"
    assert picture.stat().st_size > 10_000
