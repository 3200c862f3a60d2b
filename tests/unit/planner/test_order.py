import hashlib
import itertools
from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError
from emlio.planner.block_order import BlockOrder
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle, ShuffleMode, make_order
from emlio.planner.permutation import Permutation


def _catalog(*sizes: int) -> Catalog:
    return Catalog(
        shards=tuple(
            ShardEntry(name=f"s{number:06d}", records=size, size_bytes=size, digest="")
            for number, size in enumerate(sizes)
        )
    )


def _blocks_by_hand(records: int, block: int, window: int, blocks_key: bytes, windows_key: bytes) -> list[int]:
    """The definition, carried out with lists: blocks in a row, cut into windows, each window mixed."""
    cut = [list(range(first, min(first + block, records))) for first in range(0, records, block)]
    row = [cut[number] for number in Permutation(len(cut), blocks_key).forward(np.arange(len(cut))).tolist()]
    order: list[int] = []
    for number, first in enumerate(range(0, len(row), window)):
        members = [record for blocks in row[first : first + window] for record in blocks]
        size = len(members)
        mixed = Permutation(size, windows_key).forward(np.arange(size), np.full(size, number))
        order += [members[at] for at in mixed.tolist()]
    return order


@pytest.mark.parametrize("key", [b"0", b"1", b"2", b"3", b"4"])
@pytest.mark.parametrize(
    ("records", "block", "window"),
    [
        (1, 1, 1),
        (1, 9, 9),
        (10, 3, 2),
        (100, 7, 4),
        (105, 7, 4),
        (112, 7, 4),
        (50, 1, 8),
        (50, 8, 1),
        (50, 64, 3),
        (999, 10, 7),
    ],
)
def test_block_order_is_what_its_definition_says(records: int, block: int, window: int, key: bytes) -> None:
    order = BlockOrder(
        records=records, block_records=block, window_blocks=window, blocks_key=b"b" + key, windows_key=b"w" + key
    )
    by_hand = _blocks_by_hand(records, block, window, b"b" + key, b"w" + key)
    assert order.ids(np.arange(records)).tolist() == by_hand
    # One place at a time takes the way without the table of blocks.
    assert [int(order.ids(np.array([place]))[0]) for place in range(0, records, 3)] == by_hand[::3]
    assert order.ids(np.arange(0)).size == 0


def test_records_stay_within_the_window_of_their_block() -> None:
    block, window = 10, 4
    order = make_order(_catalog(1000), Shuffle(mode=ShuffleMode.BLOCK, block_records=block, window_blocks=window), 3, 0)
    ids = order.ids(np.arange(1000)).reshape(-1, block * window)
    for stretch in ids:
        blocks, counts = np.unique(stretch // block, return_counts=True)
        assert blocks.size == window
        assert counts.tolist() == [block] * window
        assert stretch[:block].tolist() != sorted(stretch[:block].tolist())


def test_two_windows_of_an_epoch_are_mixed_differently() -> None:
    order = BlockOrder(records=640, block_records=64, window_blocks=1, blocks_key=b"b", windows_key=b"w")
    within = {tuple((stretch % 64).tolist()) for stretch in order.ids(np.arange(640)).reshape(10, 64)}
    assert len(within) == 10


def test_shard_order_shuffles_shards_and_keeps_the_records_of_each_together() -> None:
    catalog = _catalog(3, 0, 5, 1, 0, 4)
    seen: set[tuple[int, ...]] = set()
    for epoch in range(40):
        ids = make_order(catalog, Shuffle(mode=ShuffleMode.SHARD), 1, epoch).ids(np.arange(13))
        shards, records = catalog.locate(ids)
        runs = [int(shards[0])] + [int(b) for a, b in itertools.pairwise(shards) if a != b]
        assert sorted(runs) == [0, 2, 3, 5]
        for shard in runs:
            assert records[shards == shard].tolist() == list(range(catalog.shards[shard].records))
        seen.add(tuple(runs))
    assert len(seen) > 12  # of 24


def test_without_shuffle_every_epoch_is_in_file_order() -> None:
    for epoch in (0, 1):
        order = make_order(_catalog(5, 5), Shuffle.parse(False), 9, epoch)
        assert order.ids(np.arange(10)).tolist() == list(range(10))


@pytest.mark.parametrize("text", ["global", "block", "shard"])
def test_seed_and_epoch_are_hashed_together(text: str) -> None:
    catalog = _catalog(*[100] * 50)
    shuffle = Shuffle.parse(text)
    orders = {
        make_order(catalog, shuffle, seed, epoch).ids(np.arange(5000)).tobytes()
        for seed, epoch in ((7, 0), (7, 1), (8, 0), (6, 2), (1, 11), (11, 1), (111, 0), (2**63 - 1, 5))
    }
    assert len(orders) == 8


def test_an_order_is_keyed_by_version_seed_epoch_and_purpose() -> None:
    key = hashlib.sha256(b"emlio.plan/1/42/3/records").digest()
    ids = make_order(_catalog(1000), Shuffle(), 42, 3).ids(np.arange(1000))
    assert np.array_equal(ids, Permutation(1000, key).forward(np.arange(1000)))


@pytest.mark.parametrize(
    ("value", "mode"),
    [
        (True, ShuffleMode.GLOBAL),
        (False, ShuffleMode.NONE),
        ("global", ShuffleMode.GLOBAL),
        ("block", ShuffleMode.BLOCK),
        ("shard", ShuffleMode.SHARD),
        ("none", ShuffleMode.NONE),
        (Shuffle(mode=ShuffleMode.SHARD), ShuffleMode.SHARD),
    ],
)
def test_a_shuffle_is_read_from_what_users_write(value: str | bool | Shuffle, mode: ShuffleMode) -> None:
    assert Shuffle.parse(value) == Shuffle(mode=mode)


def test_a_shuffle_survives_its_text() -> None:
    for shuffle in (Shuffle.parse("block:7:3"), *(Shuffle(mode=mode) for mode in ShuffleMode)):
        assert Shuffle.parse(str(shuffle)) == shuffle
    assert Shuffle.parse("block:7:3") == Shuffle(mode=ShuffleMode.BLOCK, block_records=7, window_blocks=3)


@pytest.mark.parametrize("value", ["", "Global", "random", "block:", "block:1", "block:1:-2", "global:1:2", "True"])
def test_an_unknown_shuffle_is_refused_with_the_choices(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Shuffle.parse(value)
    assert "True, False, 'global', 'block', 'shard', 'none' or 'block:RECORDS:BLOCKS'" in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(("block", "window"), [(0, 1), (1, 0), (2**21, 2**20)])
def test_impossible_blocks_are_refused(block: int, window: int) -> None:
    with pytest.raises(ConfigError, match=f"got {block} and {window}"):
        Shuffle(mode=ShuffleMode.BLOCK, block_records=block, window_blocks=window)


def test_what_is_no_text_is_no_shuffle() -> None:
    given: tuple[Any, ...] = (None, 1, 0, b"global", [])
    for value in given:
        with pytest.raises(ConfigError, match=r"shuffle must be True, False, .* got "):
            Shuffle.parse(value)


def test_numpys_values_make_the_same_shuffle() -> None:
    given: Any = np.False_, np.int64(7)
    assert Shuffle.parse(given[0]) == Shuffle.parse(False)
    blocks = Shuffle(mode=ShuffleMode.BLOCK, block_records=given[1], window_blocks=3)
    assert str(blocks) == "block:7:3"
    assert type(blocks.block_records) is int
    with pytest.raises(ConfigError, match=r"block_records must be a whole number, got 7\.5"):
        Shuffle(mode=ShuffleMode.BLOCK, block_records=7.5)  # type: ignore[arg-type]  # what callers may do


def test_block_sizes_without_blocks_are_refused() -> None:
    with pytest.raises(ConfigError, match="with shuffle='block' only, got 5 and 64 with shuffle='global'"):
        Shuffle(block_records=5)
