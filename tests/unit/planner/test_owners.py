import dataclasses

import numpy as np
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.planner.catalog import ShardEntry
from emlio.planner.owners import Holdings, assign_owners, merge_holdings


def _entry(name: str, size_bytes: int = 100) -> ShardEntry:
    return ShardEntry(name=name, records=10, size_bytes=size_bytes, digest=f"digest of {name}")


def test_parts_and_copies_are_merged_by_name() -> None:
    a, b, c = _entry("a"), _entry("b"), _entry("c")
    holdings = merge_holdings({"two": [c, b], "one": [a, b], "idle": []})
    assert holdings.daemons == ("idle", "one", "two")
    assert holdings.catalog.shards == (a, b, c)
    assert holdings.holders == (("one",), ("one", "two"), ("two",))


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [("records", 11, "records 10 and 11"), ("size_bytes", 7, "size_bytes 100 and 7"), ("digest", "z", "'z'")],
)
def test_copies_that_differ_are_refused_with_shard_daemons_and_difference(
    field: str, value: int | str, named: str
) -> None:
    other = dataclasses.replace(_entry("a"), **{field: value})  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match=r"'a' must be the same, at one and two they differ") as caught:
        merge_holdings({"one": [_entry("a")], "two": [other]})
    assert named in str(caught.value)
    assert str(caught.value).count(" and ") == 2  # the daemons, and the one thing that differs


def test_a_shard_listed_twice_by_one_daemon_is_refused() -> None:
    with pytest.raises(DatasetError, match="listed once by one, got it twice"):
        merge_holdings({"one": [_entry("a"), _entry("a")]})


def test_daemons_without_any_record_are_no_dataset() -> None:
    with pytest.raises(DatasetError, match="got 0 in 0"):
        merge_holdings({"one": []})


def test_the_only_holder_owns_and_copies_are_balanced_by_bytes() -> None:
    big = [_entry(f"big{k}", 1000) for k in range(2)]
    small = [_entry(f"small{k}", 100) for k in range(20)]
    only = _entry("only", 500)
    holdings = merge_holdings({"x": [*big, *small], "y": [*big, *small, only]})
    owners = assign_owners(holdings)
    assert owners.dtype == np.int32
    load = [0, 0]
    for owner, entry in zip(owners, holdings.catalog.shards, strict=True):
        load[owner] += entry.size_bytes
    assert sum(load) == 4500
    assert abs(load[0] - load[1]) <= 100
    assert owners[[entry.name for entry in holdings.catalog.shards].index("only")] == 1


def test_owners_do_not_depend_on_the_order_in_which_daemons_are_told() -> None:
    shards = [_entry(f"s{k}", 100 + 13 * k) for k in range(30)]
    one = merge_holdings({"x": shards, "y": shards, "z": shards[:7]})
    other = merge_holdings({"z": shards[6::-1], "y": shards[::-1], "x": shards})
    assert one == other
    assert assign_owners(one).tolist() == assign_owners(other, alive=["z", "x", "y"]).tolist()


def test_when_a_daemon_goes_only_its_shards_move_and_in_balance() -> None:
    shards = [_entry(f"s{k:03d}", 100) for k in range(90)]
    holdings = merge_holdings({"x": shards, "y": shards, "z": shards})
    before, after = assign_owners(holdings), assign_owners(holdings, alive=["x", "z"])
    assert np.bincount(before).tolist() == [30, 30, 30]
    assert np.bincount(after, minlength=3).tolist() == [45, 0, 45]
    assert np.array_equal(before[before != 1], after[before != 1])


def test_shards_that_nobody_alive_holds_are_named() -> None:
    shards = [_entry(f"s{k}") for k in range(8)]
    holdings = merge_holdings({"x": shards, "y": shards[:1]})
    with pytest.raises(DatasetError, match=r"daemons in use \(y\), no daemon holds s1, s2, s3, s4, s5 and 2 more"):
        assign_owners(holdings, alive=["y"])
    with pytest.raises(DatasetError, match=r"\(none\)"):
        assign_owners(holdings, alive=[])


def test_an_unknown_daemon_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"got \['w'\]"):
        assign_owners(merge_holdings({"x": [_entry("a")]}), alive=["w", "x"])


def test_holdings_must_fit_together() -> None:
    catalog = merge_holdings({"x": [_entry("a")]}).catalog
    with pytest.raises(ConfigError, match="sorted, each once"):
        Holdings(catalog=catalog, daemons=("y", "x"), holders=(("x",),))
    with pytest.raises(ConfigError, match="one item for each of 1 shards, got 0"):
        Holdings(catalog=catalog, daemons=("x",), holders=())
    with pytest.raises(ConfigError, match=r"got \['y'\]"):
        Holdings(catalog=catalog, daemons=("x",), holders=(("x", "y"),))
