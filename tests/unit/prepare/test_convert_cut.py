import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio.errors import ConfigError
from emlio.prepare.targets.shard_set import cut


@given(sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=60), data=st.data())
def test_every_shard_gets_a_record_and_every_record_a_shard(sizes: list[int], data: st.DataObject) -> None:
    shards = data.draw(st.integers(1, len(sizes)))
    bounds = cut(np.array(sizes, dtype=np.int64), shard_bytes=None, shards=shards)
    assert len(bounds) == shards + 1
    assert bounds[0] == 0
    assert bounds[-1] == len(sizes)
    assert np.diff(bounds).min() >= 1


def test_shards_differ_by_about_one_record() -> None:
    sizes = np.random.default_rng(1).integers(100, 2000, 5000)
    bounds = cut(sizes, shard_bytes=100_000, shards=None)
    totals = np.add.reduceat(sizes, bounds[:-1])
    assert len(totals) == -(-int(sizes.sum()) // 100_000)
    assert totals.max() - totals.min() <= 2 * 2000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shard_bytes": 4096, "shards": 2}, "either the size"),
        ({"shard_bytes": None, "shards": None}, "either the size"),
        ({"shard_bytes": 1023, "shards": None}, "at least 1024"),
        ({"shard_bytes": None, "shards": 0}, r"in \[1, 99999\], got 0"),
        ({"shard_bytes": None, "shards": 11}, "at most 10, .*got 11"),
    ],
)
def test_impossible_cuts_are_refused(arguments: dict[str, int | None], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cut(np.full(10, 100, dtype=np.int64), **arguments)


def test_more_shards_than_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="larger shards"):
        cut(np.full(200_000, 1024, dtype=np.int64), shard_bytes=1024, shards=None)
