"""Keys that occur in several tars are found, whichever of the tars comes first."""

from itertools import permutations
from pathlib import Path

import pytest

from emlio.errors import ConfigError
from emlio.prepare.targets.tar_set import SampleKeys


@pytest.mark.parametrize("order", [order for order in permutations(range(3)) if order[-1] != 1])
def test_a_key_of_two_shards_is_refused_in_any_order(tmp_path: Path, order: tuple[int, ...]) -> None:
    shards = {0: ["a", "b"], 1: ["c"], 2: ["d", "a"]}
    keys = SampleKeys(tmp_path, 3)
    *first, last = order
    for shard in first:
        keys.add(shard, shards[shard])
    with pytest.raises(ConfigError, match="'a' is that of two"):
        keys.add(last, shards[last])


@pytest.mark.parametrize("first", range(3))
def test_a_shard_that_is_made_again_meets_itself_without_harm(tmp_path: Path, first: int) -> None:
    keys = SampleKeys(tmp_path, 3)
    for shard in (first, first, *range(3)):
        keys.add(shard, [f"key {shard}"])
