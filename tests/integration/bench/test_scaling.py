"""Several daemons, quickly: real daemons behind lines of their own, and what they are given to hold."""

from pathlib import Path

import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.index.opening import open_dataset
from emlio_bench.cli import main
from emlio_bench.costs.daemons import Mark, line_spec, received_between
from emlio_bench.harness.data import make_data, shard_paths, split_evenly
from emlio_bench.harness.results import read_results
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.link.emulated import why_not


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


def test_of_a_batch_across_an_edge_of_the_span_its_part_counts() -> None:
    marks = [Mark(0, 100), Mark(100, 200), Mark(200, 600)]
    assert received_between(marks, 0, 200) == 500
    assert received_between(marks, 50, 125) == 300 - 150
    for begin_ns, end_ns in ((-1, 100), (100, 201), (100, 100)):
        with pytest.raises(ConfigError, match="must read in all of"):
            received_between(marks, begin_ns, end_ns)


def test_a_line_holds_what_is_on_its_way_and_a_queue_that_takes_as_long_at_any_round_trip() -> None:
    for rtt_ns in (0, 1_000_000, 30_000_000):
        assert line_spec(rtt_ns).held_bytes == 50_000 * rtt_ns // 2 // 1_000_000 + 5_000_000


@pytest.mark.slow
def test_four_daemons_behind_lines_of_their_own_feed_three_ranks(tmp_path: Path) -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"an emulated link {reason}")
    path = tmp_path / "costs.json"
    assert main(["costs", "--quick", "--only", "daemons", "--rtt", "1ms", "--json", str(path)]) == 0
    figures = {figure.name: figure.values for figure in read_results(path).figures}
    # A line carries 0.4 Gbit/s; what a batch brings at the edges of so short a sample is half as much again at most.
    assert 0.05 < figures["1 ms: one daemon"][0] < 0.6
    assert 0.3 < figures["1 ms: 4 daemons over 4 x one"][0] < 3
