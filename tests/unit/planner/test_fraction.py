import numpy as np
import pytest

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog
from emlio.planner.choice.fraction import RUN, Fraction, RunRanks, train_test_split
from emlio_testing.planning import catalog_of

SIZES = {"m0": 0, "m1": 1, "m2": 2, "m3": 3, "m4": 255, "m5": 256, "m6": 257, "m7": 1999, "m8": 70, "m9": 4096}


def _ids(fraction: Fraction, catalog: Catalog) -> list[int]:
    selected = fraction.select(catalog)
    return selected.records(np.arange(selected.within.records), in_order=True).tolist()


def _places(fraction: Fraction, catalog: Catalog) -> set[tuple[str, int]]:
    shards, numbers = catalog.locate(np.array(_ids(fraction, catalog)))
    return {(catalog.shards[shard].name, number) for shard, number in zip(shards, numbers.tolist(), strict=True)}


@pytest.mark.parametrize("parts", [[0.8, 0.1, 0.1], [0.001, 0.999], [0.37, 0.63], [1.0], [0.25] * 4])
def test_parts_of_a_split_are_disjoint_and_together_the_whole(parts: list[float]) -> None:
    catalog = catalog_of(named=SIZES)
    found = [one for part in train_test_split(parts, seed=3) for one in _ids(part, catalog)]
    assert sorted(found) == list(range(catalog.records))


@pytest.mark.parametrize("fraction", [Fraction(0, 0.9, 1), Fraction(0.9, 1, 1), Fraction(0.3, 0.301), Fraction(0.5)])
def test_a_fraction_has_its_share_of_each_shard_within_one_record(fraction: Fraction) -> None:
    catalog = catalog_of(named=SIZES)
    share = fraction.end - fraction.begin
    counts = np.diff(fraction.select(catalog).within.bases)
    assert np.abs(counts - share * np.diff(catalog.bases)).max() < 1


@pytest.mark.parametrize("fraction", [Fraction(0, 0.9, 1), Fraction(0.97, 1, 1), Fraction(0.3, 0.305)])
def test_numbers_membership_and_both_orders_agree(fraction: Fraction) -> None:
    catalog = catalog_of(named=SIZES)
    selected = fraction.select(catalog)
    numbers = np.arange(selected.within.records)
    rising = selected.records(numbers, in_order=True)
    quick = selected.records(numbers, in_order=False)
    assert (np.diff(rising) > 0).all()
    assert np.sort(quick).tolist() == rising.tolist()
    assert catalog.shards_of(quick).tolist() == selected.within.shards_of(numbers).tolist()
    assert np.flatnonzero(selected.has(np.arange(catalog.records))).tolist() == rising.tolist()
    # A single number, and numbers in no order, give the same records.
    some = np.random.default_rng(0).permutation(numbers)[:50]
    for in_order, whole in ((True, rising), (False, quick)):
        assert selected.records(some, in_order=in_order).tolist() == whole[some].tolist()
        assert selected.records(some[:1], in_order=in_order).tolist() == whole[some[:1]].tolist()


@pytest.mark.parametrize("added", ["a-first", "m55-between", "z-last"])
def test_added_shards_move_no_record_to_another_part(added: str) -> None:
    for part in train_test_split(0.2, seed=9):
        before, after = catalog_of(named=SIZES), catalog_of(named={**SIZES, added: 777})
        kept = {place for place in _places(part, after) if place[0] != added}
        assert kept == _places(part, before)


def test_another_seed_chooses_other_records_and_a_run_is_mixed() -> None:
    catalog = catalog_of(named={"a": 10_000})
    one, other = set(_ids(Fraction(0, 0.5, 1), catalog)), set(_ids(Fraction(0, 0.5, 2), catalog))
    assert len(one) == 5000
    assert 2300 < len(one & other) < 2700
    # Neighbours are chosen independently of each other.
    chosen = np.isin(np.arange(10_000), list(one))
    assert abs(float((chosen[1:] == chosen[:-1]).mean()) - 0.5) < 0.03


def test_shards_of_the_same_length_are_split_differently() -> None:
    catalog = catalog_of(named={"a": 256, "b": 256})
    ids = np.array(_ids(Fraction(0, 0.5), catalog))
    assert ids[ids < 256].tolist() != (ids[ids >= 256] - 256).tolist()


def test_shards_of_one_record_are_chosen_in_proportion() -> None:
    catalog = catalog_of(named={f"s{number:05d}": 1 for number in range(4000)})
    counts = [part.select(catalog).within.records for part in train_test_split(0.1, seed=1)]
    assert sum(counts) == 4000
    assert abs(counts[1] - 400) < 80  # four standard deviations


def test_a_billion_records_take_memory_by_the_shard() -> None:
    catalog = catalog_of(named={f"s{number:04d}": 10**6 for number in range(1000)})
    train, test = (part.select(catalog) for part in train_test_split(0.1, seed=7))
    assert (train.within.records, test.within.records) == (900_000_000, 100_000_000)
    numbers = np.random.default_rng(1).integers(0, train.within.records, 1000)
    ids = train.records(numbers, in_order=False)
    assert train.has(ids).all()
    assert not test.has(ids).any()


def test_the_choice_never_changes() -> None:
    catalog = catalog_of(named={"train-00000": 700, "train-00001": 30})
    assert _ids(Fraction(0, 0.02, seed=7), catalog) == [
        58,
        66,
        205,
        224,
        243,
        299,
        366,
        371,
        404,
        446,
        505,
        536,
        544,
        694,
        715,
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100, 255, 256])
def test_ranks_of_a_run_are_a_permutation(size: int) -> None:
    ranks, offsets = RunRanks(5), np.arange(size)
    sizes, tweaks = np.full(size, size), np.full(size, 12345)
    found = ranks.ranks(offsets, sizes, tweaks)
    assert sorted(found.tolist()) == list(range(size))
    assert ranks.offsets(found, sizes, tweaks).tolist() == offsets.tolist()
    assert RUN == 256


@pytest.mark.parametrize(
    ("begin", "end", "seed", "words"),
    [
        (0.5, 0.5, 0, "at least a billionth above"),
        (0.6, 0.5, 0, "at least a billionth above"),
        (-0.1, 0.5, 0, r"begin of a fraction must be a number in \[0, 1\], got -0.1"),
        (0, 1.5, 0, "end of a fraction must be a number"),
        (0, True, 0, "end of a fraction must be a number"),
        (0, float("nan"), 0, "end of a fraction must be a number"),
        (0, "half", 0, "end of a fraction must be a number"),
        (0, 0.5, -1, "seed of a fraction"),
        (0, 0.5, None, "seed of a fraction"),
    ],
)
def test_a_wrong_fraction_is_refused(begin: float, end: float, seed: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Fraction(begin, end, seed)


@pytest.mark.parametrize(
    ("parts", "words"),
    [([0.5, 0.4], "add up to 0.9"), ([], "above 0"), ([0.5, 0.5, 0], "above 0"), (1.5, "above 0"), (0.0, "above 0")],
)
def test_a_wrong_split_is_refused(parts: float | list[float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        train_test_split(parts)


def test_a_fraction_of_which_nothing_is_left_is_refused() -> None:
    with pytest.raises(ConfigError, match="leaves none of 3"):
        Fraction(0.5, 0.5 + 1e-9).select(catalog_of(named={"a": 3}))
