import math

import pytest

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.planner.quality import Quality, measure_quality


def _quality(shuffle: str, *, records: int = 100_000, shards: int = 40, batch: int = 100) -> Quality:
    share, more = divmod(records, shards)
    catalog = Catalog(
        shards=tuple(
            ShardEntry(name=f"s{number:05d}", records=share + (number < more), size_bytes=1, digest="")
            for number in range(shards)
        )
    )
    plan = Plan(catalog, PlanSpec(seed=11, shuffle=Shuffle.parse(shuffle), batch_size=batch))
    return measure_quality(plan, 1)


def test_the_global_order_cannot_be_told_from_a_random_one() -> None:
    quality = _quality("global")
    assert quality.batches == 655
    assert quality.batch_samples == 100
    assert abs(quality.neighbour_correlation) < 0.02
    assert quality.neighbour_distance == pytest.approx(1 / 3, abs=0.005)
    assert quality.shards_per_batch == pytest.approx(quality.shards_per_batch_random, abs=0.3)
    assert quality.blocks_per_batch == pytest.approx(quality.blocks_per_batch_random, abs=0.5)


def test_the_file_order_is_not_mixed_at_all() -> None:
    quality = _quality("none")
    assert quality.neighbour_correlation > 0.999999
    assert quality.neighbour_distance == pytest.approx(1 / 100_000)
    assert quality.shards_per_batch == 1.0  # 2,500 records a shard: batches of 100 never cross a border
    assert 1.3 < quality.blocks_per_batch < 1.5  # 99 of 256 beginnings cross one


def test_the_shard_order_is_mixed_between_shards_only() -> None:
    quality = _quality("shard")
    assert quality.neighbour_correlation > 0.99
    assert quality.shards_per_batch == 1.0


def test_the_block_order_is_mixed_through_its_window() -> None:
    quality = _quality("block", records=1_000_000, shards=1000, batch=256)
    assert quality.neighbour_correlation == pytest.approx(1 / 64, abs=0.02)  # a neighbour shares the block in 1 of 64
    assert quality.neighbour_distance == pytest.approx(1 / 3 * 63 / 64, abs=0.02)
    assert 62 < quality.blocks_per_batch < 64
    assert quality.shards_per_batch_random > 200


def test_the_random_expectation_is_exact_for_draws_without_putting_back() -> None:
    quality = _quality("global", records=12, shards=3, batch=5)
    missed = math.comb(8, 5) / math.comb(12, 5)
    assert quality.shards_per_batch_random == pytest.approx(3 * (1 - missed))
    assert quality.blocks_per_batch_random == 1.0
    assert quality.blocks_per_batch == 1.0


def test_shards_of_unlike_sizes_and_empty_ones_are_expected_as_often_as_they_are_met() -> None:
    sizes = (0, 1, 10, 500, 2000, 7)
    catalog = Catalog(
        shards=tuple(
            ShardEntry(name=f"s{number}", records=size, size_bytes=1, digest="") for number, size in enumerate(sizes)
        )
    )
    quality = measure_quality(Plan(catalog, PlanSpec(seed=3, batch_size=20)))
    by_hand = sum(1 - math.comb(2518 - size, 20) / math.comb(2518, 20) for size in sizes)
    assert quality.shards_per_batch_random == pytest.approx(by_hand)
    assert quality.shards_per_batch == pytest.approx(by_hand, abs=0.2)


def test_a_billion_records_are_measured_by_a_sample() -> None:
    quality = _quality("global", records=10**9, shards=1000, batch=256)
    assert quality.batches * quality.batch_samples == 65536
    assert quality.shards_per_batch == pytest.approx(quality.shards_per_batch_random, rel=0.01)
    assert quality.blocks_per_batch_random == pytest.approx(256, abs=0.05)
    assert abs(quality.neighbour_correlation) < 0.02


@pytest.mark.parametrize("records", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 2, 1000])
def test_tiny_datasets_have_figures_too(records: int, batch: int) -> None:
    quality = _quality("global", records=records, shards=1, batch=batch)
    assert quality.shards_per_batch == 1.0
    assert quality.shards_per_batch_random == pytest.approx(1.0)
    assert -1.0 <= quality.neighbour_correlation <= 1.0


def test_impossible_sizes_are_refused() -> None:
    catalog = Catalog(shards=(ShardEntry(name="s", records=9, size_bytes=1, digest=""),))
    plan = Plan(catalog, PlanSpec(batch_size=2))
    for block, samples in ((0, 5), (5, 0)):
        with pytest.raises(ConfigError, match=f"at least 1, got {block} and {samples}"):
            measure_quality(plan, block_records=block, samples=samples)
