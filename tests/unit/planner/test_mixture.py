"""Mixtures of datasets in the plan: exact proportions, no record twice before its dataset is through, lengths, texts."""

import hashlib
import time
from collections import Counter
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.errors import ConfigError, PlanError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.mixture.given import given_sampling, whole_weights
from emlio.planner.mixture.merged import parts_of, prefix_of
from emlio.planner.mixture.mixed_order import BLOCK, MixedOrder
from emlio.planner.mixture.sampling import MixtureSampling
from emlio.planner.mixture.shares import MOST_WEIGHT, Shares
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.planner.sampling import parse_sampling
from emlio.planner.state import PlanState

_WEIGHTS = st.lists(st.one_of(st.integers(0, 9), st.integers(0, 10**8)), min_size=1, max_size=9).filter(any)
_SHUFFLES = ["global", "block:4:3", "shard", "none"]


def _catalog(*sizes: int, shards: int = 3) -> Catalog:
    return Catalog(
        shards=tuple(
            ShardEntry(
                name=f"{prefix_of(number)}s{shard:02d}",
                records=size // shards + (shard < size % shards),
                size_bytes=size,
                digest="d",
            )
            for number, size in enumerate(sizes)
            for shard in range(shards)
        )
    )


def _mixture(
    length: int | str, *weights: float, then: tuple[tuple[int, tuple[float, ...]], ...] = ()
) -> MixtureSampling:
    changes = ((0, weights), *then)
    return MixtureSampling(length, tuple((start, Shares(whole_weights(values))) for start, values in changes))


def _order(
    sampling: MixtureSampling, catalog: Catalog, shuffle: str = "global", seed: int = 0, epoch: int = 0
) -> MixedOrder:
    return sampling.order(catalog, Shuffle.parse(shuffle), seed, epoch)


def _all(sampling: MixtureSampling, catalog: Catalog, shuffle: str, epochs: int) -> npt.NDArray[np.int64]:
    places = np.arange(sampling.places(catalog), dtype=np.int64)
    return np.concatenate([_order(sampling, catalog, shuffle, epoch=epoch).ids(places) for epoch in range(epochs)])


# ---- weights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ([0.7, 0.3], (7, 3)),
        ([np.float32(0.7), np.float64(0.3)], (7, 3)),
        ([Fraction(1, 3), Fraction(2, 3)], (1, 2)),
        ([10**9, 10**6, 10**3], (10**6, 10**3, 1)),
        ([1, 0], (1, 0)),
        ([0.25, 1e-6], (250_000, 1)),
    ],
    ids=["decimals", "numpy", "fractions", "sizes", "zero", "small"],
)
def test_weights_are_what_the_user_wrote(given: list[object], whole: tuple[int, ...]) -> None:
    assert whole_weights(given) == whole


def test_weights_with_too_many_digits_are_rounded_to_nine_and_none_vanishes() -> None:
    found = whole_weights([0.1 + 0.2, 0.7, 1e-300])
    assert sum(found) <= MOST_WEIGHT
    assert found[2] >= 1
    assert abs(found[0] / sum(found) - 0.3) < 1e-8


@pytest.mark.parametrize("wrong", [[0, 0], [-0.5, 1], [float("nan"), 1], [True, 1], ["0.5", 1]])
def test_what_is_no_weight_is_refused_with_its_value(wrong: list[object]) -> None:
    with pytest.raises(ConfigError, match=r"weights must"):
        whole_weights(wrong)


# ---- shares -----------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(_WEIGHTS, st.integers(0, 2**70), st.lists(st.integers(0, 3000), min_size=1, max_size=60))
def test_each_place_has_one_dataset_and_counts_are_those_of_the_places_before(
    weights: list[int], base: int, places: list[int]
) -> None:
    shares = Shares(tuple(weights))
    divided = shares.divide(base, np.array(places, np.int64))
    begin = shares.counts(base)
    seen: Counter[int] = Counter()
    for number, indexes, draws in divided:
        pairs: list[tuple[int, int]] = list(zip(indexes.tolist(), draws.tolist(), strict=True))
        for index, drawn in pairs:
            seen[index] += 1
            before, after = shares.counts(base + places[index]), shares.counts(base + places[index] + 1)
            assert drawn == before[number] - begin[number]
            assert after == tuple(count + (which == number) for which, count in enumerate(before))
    assert seen == Counter(range(len(places)))


@settings(max_examples=150, deadline=None)
@given(_WEIGHTS, st.integers(0, 2**50))
def test_counts_are_less_than_two_from_exact_shares(weights: list[int], places: int) -> None:
    shares = Shares(tuple(weights))
    counts = shares.counts(places)
    assert sum(counts) == places
    for count, weight, bound in zip(counts, weights, shares.deviations(), strict=True):
        assert bound < 2
        assert abs(count - Fraction(places * weight, shares.total)) <= bound
    rounds = shares.counts(shares.total * 7)
    assert rounds == tuple(7 * weight for weight in weights)


# ---- epochs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", _SHUFFLES)
@pytest.mark.parametrize("weights", [(0.7, 0.2, 0.1), (0.5, 0.499, 0.001), (1, 1, 1)], ids=str)
def test_counts_of_any_thousand_samples_are_within_the_promise(weights: tuple[float, ...], shuffle: str) -> None:
    catalog, sampling = _catalog(4000, 700, 90), _mixture(5000, *weights)
    bounds = sampling.most_deviation()
    order = _order(sampling, catalog, shuffle, seed=7, epoch=3)
    datasets = order.datasets(np.arange(5000, dtype=np.int64))
    for number, weight in enumerate(weights):
        share = weight / sum(weights)
        before = np.concatenate(([0], np.cumsum(datasets == number)))
        deviations = before[1000:] - before[:-1000] - 1000 * share
        assert np.abs(deviations).max() <= float(bounds[number])
        # After whole blocks since the run's beginning the counts are exact but for rounding.
        begin = sampling.counts(3 * 5000)[number]
        after = np.arange(0, 5001, BLOCK)
        assert np.abs(begin + before[after] - (15_000 + after) * share).max() < 2


@pytest.mark.parametrize("shuffle", _SHUFFLES)
def test_no_record_comes_again_before_its_dataset_is_through_also_over_epochs(shuffle: str) -> None:
    sizes = (300, 41, 7)
    catalog, sampling = _catalog(*sizes), _mixture(101, 0.6, 0.3, 0.1)
    ids = _all(sampling, catalog, shuffle, epochs=12)
    first = 0
    for size in sizes:
        own = ids[(ids >= first) & (ids < first + size)] - first
        for begin in range(0, len(own) - size, size):
            assert sorted(own[begin : begin + size].tolist()) == list(range(size))
        rest = own[len(own) - len(own) % size :]
        assert len(set(rest.tolist())) == len(rest)
        first += size


def test_counts_at_the_ends_of_epochs_follow_from_the_weights_alone() -> None:
    catalog, sampling = _catalog(300, 41, 7), _mixture(101, 0.6, 0.3, 0.1, then=((250, (0, 1, 1)), (333, (1, 0, 0))))
    ids = _all(sampling, catalog, "global", epochs=6)
    datasets = np.searchsorted([300, 341], ids, side="right")
    for samples in (0, 101, 202, 250, 303, 333, 404, 606):
        found = np.bincount(datasets[:samples], minlength=3)
        assert tuple(found.tolist()) == sampling.counts(samples)
    assert not (datasets[250:333] == 0).any()
    assert (datasets[333:] == 0).all()


def test_passes_epochs_and_datasets_of_equal_size_have_orders_of_their_own() -> None:
    catalog, sampling = _catalog(60, 60), _mixture(120, 1, 1)
    ids = _all(sampling, catalog, "global", epochs=2)
    one, other = ids[ids < 60], ids[ids >= 60] - 60
    orders = [tuple(part.tolist()) for part in (one[:60], one[60:], other[:60], other[60:])]
    assert len(set(orders)) == 4
    assert all(sorted(order) == list(range(60)) for order in orders)


@pytest.mark.parametrize("shuffle", _SHUFFLES)
def test_a_range_of_places_does_not_depend_on_what_else_is_asked(shuffle: str) -> None:
    catalog = _catalog(300, 41, 7)
    sampling = _mixture(500, 0.6, 0.3, 0.1, then=((133, (1, 1, 1)), (700, (1, 2, 3))))
    order = _order(sampling, catalog, shuffle, epoch=1)
    places = np.arange(500, dtype=np.int64)
    ids = order.ids(places)
    drawn = np.random.default_rng(1).permutation(places)
    assert (_order(sampling, catalog, shuffle, epoch=1).ids(drawn) == ids[drawn]).all()
    assert [int(order.ids(places[at : at + 1])[0]) for at in (0, 132, 133, 499)] == ids[[0, 132, 133, 499]].tolist()
    assert not order.ids(places[:0]).size


def test_records_that_come_again_within_an_epoch_are_told_apart() -> None:
    catalog, sampling = _catalog(100, 7), _mixture(100, 1, 1)
    order = _order(sampling, catalog, epoch=4)
    places = np.arange(100, dtype=np.int64)
    pairs = list(zip(order.ids(places).tolist(), order.times(places).tolist(), strict=True))
    assert len(set(pairs)) == 100
    assert len({record for record, _ in pairs}) < 100
    epoch = Plan(catalog, PlanSpec(batch_size=10, sampling=sampling)).epoch(4)
    assert epoch.repeats
    assert len(set(epoch.seed_numbers(0, 0, 100).tolist())) == 100


def test_a_far_epoch_is_computed_exactly() -> None:
    catalog, sampling = _catalog(300, 41), _mixture(1000, 0.6, 0.4)
    epoch = 2**62
    order = _order(sampling, catalog, epoch=epoch)
    datasets = order.datasets(np.arange(1000, dtype=np.int64))
    begin, end = sampling.counts(epoch * 1000), sampling.counts((epoch + 1) * 1000)
    assert np.bincount(datasets).tolist() == [after - before for before, after in zip(begin, end, strict=True)]


# ---- lengths ----------------------------------------------------------------------------------------------------------


def test_until_first_ends_before_any_dataset_begins_anew() -> None:
    catalog, sampling = _catalog(300, 41, 7), _mixture("first", 0.6, 0.3, 0.1)
    length = sampling.places(catalog)
    assert all(count <= size for count, size in zip(sampling.counts(length), (300, 41, 7), strict=True))
    assert sampling.counts(length + 1)[2] == 8
    ids = _all(sampling, catalog, "global", epochs=1)
    assert len(set(ids.tolist())) == length


def test_until_longest_ends_when_every_dataset_is_through() -> None:
    catalog, sampling = _catalog(300, 41, 7), _mixture("longest", 0.6, 0.3, 0.1)
    length = sampling.places(catalog)
    assert sampling.counts(length)[0] == 300
    assert sampling.counts(length - 1)[0] == 299
    assert set(_all(sampling, catalog, "global", epochs=1).tolist()) == set(range(348))


def test_lengths_know_of_changing_weights_and_of_datasets_that_are_never_through() -> None:
    catalog = _catalog(100, 100)
    assert _mixture("longest", 1, 1, then=((100, (0, 1)),)).places(_catalog(50, 100)) == 150
    assert _mixture("first", 0, 1, then=((60, (1, 0)),)).places(catalog) == 160
    with pytest.raises(ConfigError, match=r"number 0 of the mixture has none in the end: give samples="):
        _mixture("longest", 1, 1, then=((100, (0, 1)),)).places(catalog)
    with pytest.raises(ConfigError, match=r"gives more: give samples="):
        _mixture("longest", 2**30, 1).places(_catalog(10, 2**20))


def test_a_dataset_without_records_is_named() -> None:
    with pytest.raises(ConfigError, match=r"number 1 has none"):
        _mixture("first", 1, 1).places(_catalog(5, 0))
    with pytest.raises(ConfigError, match=r"must have the shards of these alone"):
        parts_of(_catalog(5, 5, 5), 2)


# ---- texts and states -------------------------------------------------------------------------------------------------


def test_the_text_of_a_mixture_is_read_back_and_others_are_refused() -> None:
    sampling = _mixture("longest", 0.7, 0.3, then=((1000, (1, 1)),))
    assert str(sampling) == "mixture/1/longest/0:7,3/1000:1,1"
    assert parse_sampling(str(sampling)) == sampling
    assert parse_sampling(str(_mixture(5000, 1))) == _mixture(5000, 1)
    for text in (
        *("mixture/", "mixture/2/first/0:1", "mixture/1/never/0:1", "mixture/1/first/0:", "mixture/1/first/0:1;2"),
        *("mixture/1/first/0:1,1/5:1", "mixture/1/first/3:1", "mixture/1/first/0:0,0", "mixture/1/0/0:1"),
        *("mixture/1/first/0:1/0:2", "mixture/1/first/0:4294967295,1"),
    ):
        with pytest.raises(ConfigError):
            parse_sampling(text)


def test_a_state_fits_another_world_and_refuses_other_weights_in_words() -> None:
    catalog, sampling = _catalog(300, 41), _mixture("first", 0.7, 0.3)
    state = PlanState(
        fingerprint=catalog.fingerprint, seed=5, shuffle=Shuffle(), epoch=1, consumed=64, sampling=sampling.mark
    )
    assert len(str(state.to_json())) < 300
    PlanState.from_json(state.to_json()).check(
        Plan(catalog, PlanSpec(seed=5, batch_size=3, world_size=7, sampling=sampling))
    )
    for other, words in (
        (_mixture("first", 0.6, 0.4), "weights 0.6, 0.4 and until='first'"),
        (_mixture(100, 0.7, 0.3, then=((9, (1, 1)),)), "0.7, 0.3; 0.5, 0.5 from sample 9 on and samples=100"),
    ):
        with pytest.raises(PlanError) as caught:
            state.check(Plan(catalog, PlanSpec(seed=5, batch_size=3, sampling=other)))
        assert "it was saved with a mixture with weights 0.7, 0.3 and until='first'" in str(caught.value)
        assert words in str(caught.value)
    many = MixtureSampling("first", tuple((start, Shares((1, start + 1))) for start in range(200)))
    assert len(many.mark) < 40
    assert "other weights" in MixtureSampling.words(many.mark)


def test_resumed_ranks_get_what_the_rest_of_the_epoch_holds() -> None:
    catalog, sampling = _catalog(300, 41, 7), _mixture(200, 0.6, 0.3, 0.1)
    whole = Plan(catalog, PlanSpec(batch_size=5, world_size=4, sampling=sampling)).epoch(2)
    order = whole.ids_at(np.arange(200, dtype=np.int64)).tolist()
    taken = [
        id_
        for step in range(3)
        for rank in range(4)
        for id_ in whole.ids(rank, *whole.batch_slots(rank, step)).tolist()
    ]
    resumed = Plan(catalog, PlanSpec(batch_size=7, world_size=3, sampling=sampling)).epoch(2, whole.consumed(3))
    for step in range(resumed.steps):
        for rank in range(3):
            taken += resumed.ids(rank, *resumed.batch_slots(rank, step)).tolist()
    assert taken == order


def test_the_order_is_the_one_of_every_release() -> None:
    catalog = _catalog(3000, 410, 7)
    sampling = _mixture("longest", 0.6, 0.3, 0.1, then=((1003, (1, 2, 0.5)),))
    state = hashlib.sha256()
    for shuffle in _SHUFFLES:
        for epoch in (0, 3):
            order = _order(sampling, catalog, shuffle, seed=42, epoch=epoch)
            state.update(order.ids(np.arange(1500, dtype=np.int64)).astype("<i8").tobytes())
    assert state.hexdigest()[:16] == "c980596ac8485b39"


def test_a_billion_records_cost_no_memory_and_little_time() -> None:
    catalog, sampling = _catalog(10**9, 10**6, 10**3), _mixture("longest", 0.7, 0.2, 0.1)
    epoch = Plan(catalog, PlanSpec(batch_size=256, world_size=8, sampling=sampling)).epoch(0)
    assert epoch.length == 1_428_571_428
    times: list[int] = []
    for number in range(60):
        first = number * 977 * 256
        begin_ns = time.thread_time_ns()
        ids = epoch.ids(number % 8, first, first + 256)
        times.append(time.thread_time_ns() - begin_ns)
        assert len(ids) == 256
    # About a millisecond; a margin for slow machines. Anything that grows with the records would take seconds.
    assert min(times) < 5_000_000


def test_weights_are_checked_even_if_a_schedule_replaces_them_all() -> None:
    with pytest.raises(ConfigError, match="must be numbers >= 0, got nan"):
        given_sampling([float("nan"), 1.0], schedule=[(0, [1, 2])])
