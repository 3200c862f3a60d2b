import dataclasses

import numpy as np
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.planner.catalog import Catalog, ShardEntry


def _catalog(*sizes: int) -> Catalog:
    return Catalog(
        shards=tuple(
            ShardEntry(name=f"s{number:06d}", records=size, size_bytes=10 * size, digest=f"d{number}")
            for number, size in enumerate(sizes)
        )
    )


def test_ids_run_through_the_shards_in_the_order_of_their_names() -> None:
    catalog = _catalog(3, 1, 2)
    assert catalog.records == 6
    assert catalog.bases.tolist() == [0, 3, 4, 6]
    shards, records = catalog.locate(np.arange(6))
    assert shards.tolist() == [0, 0, 0, 1, 2, 2]
    assert records.tolist() == [0, 1, 2, 0, 0, 1]


@pytest.mark.parametrize(
    "sizes",
    [
        (1,),
        (0, 5),
        (5, 0),
        (0, 0, 2, 0, 0, 1, 0),
        (1, 1, 1, 1),
        (1000, 1, 1, 1, 1, 1, 1, 1, 1000, 3),  # many beginnings close together: found by bisection
        (100_000, 99_000, 101_000, 7),
        tuple(range(50)),
    ],
)
def test_every_record_is_found_in_its_shard(sizes: tuple[int, ...]) -> None:
    catalog = _catalog(*sizes)
    shards, records = catalog.locate(np.arange(catalog.records))
    expected = np.repeat(np.arange(len(sizes)), sizes)
    assert shards.dtype == np.int64
    assert records.dtype == np.int64
    assert np.array_equal(shards, expected)
    assert np.array_equal(records, np.concatenate([np.arange(size) for size in sizes]))
    assert np.array_equal(catalog.shards_of(np.arange(catalog.records)), expected)


def test_a_billion_records_in_uneven_shards_are_found() -> None:
    sizes = [int(size) for size in np.random.default_rng(2).integers(0, 2_000_000, 1000)]
    catalog = _catalog(*sizes)
    ids = np.random.default_rng(3).integers(0, catalog.records, 50_000)
    shards, records = catalog.locate(ids)
    assert np.array_equal(shards, np.searchsorted(catalog.bases, ids, side="right") - 1)
    assert np.array_equal(catalog.bases[shards] + records, ids)


@pytest.mark.parametrize("bad", [-1, 6])
def test_an_id_outside_the_dataset_is_refused(bad: int) -> None:
    with pytest.raises(ConfigError, match=r"in \[0, 6\)"):
        _catalog(3, 1, 2).locate(np.array([0, bad]))


def test_the_fingerprint_is_that_of_version_1() -> None:
    assert _catalog(3, 1, 2).fingerprint == "9b883ea8d1538b7c3a379f8c042abbfc"


def test_the_fingerprint_follows_from_every_field() -> None:
    entry = ShardEntry(name="b", records=3, size_bytes=30, digest="x")
    others = (
        entry,
        dataclasses.replace(entry, name="c"),
        dataclasses.replace(entry, records=4),
        dataclasses.replace(entry, size_bytes=31),
        dataclasses.replace(entry, digest="y"),
        dataclasses.replace(entry, name="bx", digest=""),
    )
    prints = {Catalog(shards=(other,)).fingerprint for other in others}
    prints.add(Catalog(shards=(ShardEntry(name="a", records=0, size_bytes=0, digest=""), entry)).fingerprint)
    assert len(prints) == len(others) + 1
    assert Catalog(shards=(entry,)) == Catalog(shards=(dataclasses.replace(entry),))


@pytest.mark.parametrize("names", [("b", "a"), ("a", "a")])
def test_shards_out_of_order_or_twice_are_refused(names: tuple[str, str]) -> None:
    shards = tuple(ShardEntry(name=name, records=1, size_bytes=1, digest="") for name in names)
    with pytest.raises(DatasetError, match="sorted by name, each name once, got"):
        Catalog(shards=shards)


def test_a_dataset_without_records_or_with_too_many_is_refused() -> None:
    for shards in ((), (0, 0), (2**40, 1)):
        with pytest.raises(DatasetError, match="must hold 1 to 1099511627776 records"):
            _catalog(*shards)


def test_an_impossible_shard_is_refused() -> None:
    with pytest.raises(DatasetError, match="name must not be empty"):
        ShardEntry(name="", records=1, size_bytes=1, digest="")
    with pytest.raises(DatasetError, match="'s': records and size_bytes must not be negative, got -1 and 2"):
        ShardEntry(name="s", records=-1, size_bytes=2, digest="")


def test_bases_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        _catalog(3).bases[0] = 1
