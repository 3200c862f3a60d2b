from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle, make_order
from emlio.planner.permutation import Permutation
from emlio.planner.plan import EpochPlan, Plan, PlanSpec, walk

_SIZES = st.lists(st.integers(0, 60), min_size=1, max_size=12).filter(any)
_SHUFFLES = st.one_of(
    st.sampled_from(["global", "shard", "none", "block"]),
    st.tuples(st.integers(1, 40), st.integers(1, 12)).map(lambda sizes: f"block:{sizes[0]}:{sizes[1]}"),
).map(Shuffle.parse)
_SEEDS = st.integers(0, 2**63 - 1)


def _catalog(sizes: list[int]) -> Catalog:
    return Catalog(
        shards=tuple(
            ShardEntry(name=f"s{number:04d}", records=size, size_bytes=size, digest="")
            for number, size in enumerate(sizes)
        )
    )


def _steps(epoch: EpochPlan, end: int) -> list[int]:
    """The records of the first `end` steps, step by step and rank by rank."""
    return [
        record
        for step in range(end)
        for rank in range(epoch.spec.world_size)
        for record in epoch.ids(rank, *epoch.batch_slots(rank, step)).tolist()
    ]


@settings(max_examples=80, deadline=None)
@given(_SIZES, _SHUFFLES, _SEEDS, st.integers(0, 100), st.integers(1, 50), st.integers(1, 12), st.booleans(), st.data())
def test_every_epoch_hands_out_every_record_once_over_all_ranks(
    sizes: list[int], shuffle: Shuffle, seed: int, number: int, batch: int, world: int, pad: bool, data: st.DataObject
) -> None:
    catalog = _catalog(sizes)
    spec = PlanSpec(seed=seed, shuffle=shuffle, batch_size=batch, world_size=world, pad=pad)
    origin = data.draw(st.integers(0, catalog.records))
    epoch = Plan(catalog, spec).epoch(number, origin)
    order = make_order(catalog, shuffle, seed, number).ids(np.arange(catalog.records)).tolist()
    taken = Counter(_steps(epoch, epoch.steps))
    assert set(order[origin:]) <= set(taken)
    assert sum(taken.values()) == catalog.records - origin + epoch.repeated
    if not epoch.repeated:
        assert taken == Counter(order[origin:])
    if epoch.steps:
        lasts = [end - first for first, end in (epoch.batch_slots(r, epoch.steps - 1) for r in range(world))]
        assert max(lasts) - min(lasts) <= 1
        assert min(lasts) >= 1
        assert lasts == sorted(lasts, reverse=True)
        if pad:
            assert set(lasts) == {batch}
    assert epoch.consumed(epoch.steps) == catalog.records
    assert [epoch.slots(rank) for rank in range(world)] == [
        sum(end - first for first, end in (epoch.batch_slots(rank, step) for step in range(epoch.steps)))
        for rank in range(world)
    ]


@settings(max_examples=30, deadline=None)
@given(_SIZES, _SHUFFLES, _SEEDS, st.integers(1, 20), st.integers(1, 9))
def test_drop_last_hands_out_full_batches_of_different_records(
    sizes: list[int], shuffle: Shuffle, seed: int, batch: int, world: int
) -> None:
    catalog = _catalog(sizes)
    if batch * world > catalog.records:
        batch, world = 1, 1
    epoch = Plan(
        catalog, PlanSpec(seed=seed, shuffle=shuffle, batch_size=batch, world_size=world, drop_last=True)
    ).epoch(1)
    taken = _steps(epoch, epoch.steps)
    assert len(taken) == len(set(taken)) == epoch.steps * batch * world == epoch.consumed(epoch.steps)
    assert catalog.records - len(taken) < batch * world


@settings(max_examples=35, deadline=None)
@given(
    _SIZES,
    _SHUFFLES,
    _SEEDS,
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 9), st.integers(0, 6)), min_size=1, max_size=4),
    st.tuples(st.integers(1, 20), st.integers(1, 9)),
)
def test_an_epoch_may_stop_and_go_on_with_other_ranks_and_batches(
    sizes: list[int], shuffle: Shuffle, seed: int, parts: list[tuple[int, int, int]], last: tuple[int, int]
) -> None:
    catalog = _catalog(sizes)
    taken: list[int] = []
    origin = 0
    for batch, world, wanted in parts:
        spec = PlanSpec(seed=seed, shuffle=shuffle, batch_size=batch, world_size=world)
        epoch = Plan(catalog, spec).epoch(4, origin)
        steps = min(wanted, (catalog.records - origin) // (batch * world))  # full ones: the tail ends an epoch
        taken += _steps(epoch, steps)
        origin = epoch.consumed(steps)
        assert origin == len(taken)
    batch, world = last
    epoch = Plan(catalog, PlanSpec(seed=seed, shuffle=shuffle, batch_size=batch, world_size=world)).epoch(4, origin)
    taken += _steps(epoch, epoch.steps)
    order = make_order(catalog, shuffle, seed, 4).ids(np.arange(catalog.records)).tolist()
    assert taken[: catalog.records] == order
    assert len(taken) == catalog.records + epoch.repeated


def test_eight_ranks_may_become_six_in_the_middle_of_an_epoch() -> None:
    catalog = _catalog([331, 77, 1203, 0, 402])
    for text in ("global", "block:16:5", "shard", "none"):
        shuffle = Shuffle.parse(text)
        eight = Plan(catalog, PlanSpec(seed=3, shuffle=shuffle, batch_size=13, world_size=8)).epoch(2)
        six = Plan(catalog, PlanSpec(seed=3, shuffle=shuffle, batch_size=17, world_size=6)).epoch(2, eight.consumed(7))
        taken = _steps(eight, 7) + _steps(six, six.steps)
        assert six.repeated == 0
        assert sorted(taken) == list(range(2013))
        assert taken == make_order(catalog, shuffle, 3, 2).ids(np.arange(2013)).tolist()


@settings(max_examples=30, deadline=None)
@given(_SIZES, _SHUFFLES, _SEEDS, st.integers(1, 20), st.integers(1, 6), st.integers(1, 50), st.data())
def test_walks_over_disjoint_shards_make_up_the_rank_s_part(
    sizes: list[int], shuffle: Shuffle, seed: int, batch: int, world: int, chunk: int, data: st.DataObject
) -> None:
    catalog = _catalog(sizes)
    epoch = Plan(catalog, PlanSpec(seed=seed, shuffle=shuffle, batch_size=batch, world_size=world)).epoch(0)
    rank = data.draw(st.integers(0, world - 1))
    first = data.draw(st.integers(0, epoch.slots(rank)))
    owner = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(sizes), max_size=len(sizes))))
    found: dict[int, int] = {}
    for daemon in range(3):
        for slots, shards, records in walk(epoch, rank, first, owner == daemon, chunk):
            assert np.all(np.diff(slots) > 0)
            assert set(owner[shards].tolist()) == {daemon}
            ids = catalog.bases[shards] + records
            assert not found.keys() & set(slots.tolist())
            found |= dict(zip(slots.tolist(), ids.tolist(), strict=True))
    whole = epoch.ids(rank, first, epoch.slots(rank)).tolist()
    assert [found[slot] for slot in range(first, epoch.slots(rank))] == whole
    assert len(found) == len(whole)


@settings(max_examples=35, deadline=None)
@given(_SIZES, _SHUFFLES, _SEEDS, st.integers(0, 50), st.data())
def test_any_range_of_slots_is_that_part_of_the_walk(
    sizes: list[int], shuffle: Shuffle, seed: int, number: int, data: st.DataObject
) -> None:
    epoch = Plan(_catalog(sizes), PlanSpec(seed=seed, shuffle=shuffle, batch_size=3, world_size=2)).epoch(number)
    slots = epoch.slots(1)
    whole = epoch.ids(1, 0, slots)
    for _ in range(5):
        first = data.draw(st.integers(0, slots))
        end = data.draw(st.integers(first, slots))
        assert np.array_equal(epoch.ids(1, first, end), whole[first:end])
        assert np.array_equal(epoch.ids_at(epoch.places(1, first, end)), whole[first:end])


@settings(max_examples=35, deadline=None)
@given(st.integers(1, 2**40), st.binary(max_size=40), st.data())
def test_a_permutation_of_any_size_is_undone_by_its_inverse(n: int, key: bytes, data: st.DataObject) -> None:
    places = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=50, unique=True)), dtype=np.int64)
    tweaks = np.array(data.draw(st.lists(st.integers(0, 2**40), min_size=places.size, max_size=places.size)), np.int64)
    permutation = Permutation(n, key)
    for tweak in (None, tweaks):
        numbers = permutation.forward(places, tweak)
        assert np.array_equal(permutation.inverse(numbers, tweak), places)
        assert np.all((numbers >= 0) & (numbers < n))
    assert np.unique(permutation.forward(places)).size == places.size


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**62), st.integers(0, 2**62))
def test_the_next_epoch_is_not_the_next_seed_s_first(seed: int, epoch: int) -> None:
    catalog = _catalog([500, 500])
    places = np.arange(1000)
    one = make_order(catalog, Shuffle(), seed + 1, epoch).ids(places)
    other = make_order(catalog, Shuffle(), seed, epoch + 1).ids(places)
    assert not np.array_equal(one, other)


@settings(max_examples=60, deadline=None)
@given(_SIZES)
def test_records_are_found_where_counting_finds_them(sizes: list[int]) -> None:
    catalog = _catalog(sizes)
    shards, records = catalog.locate(np.arange(catalog.records))
    assert shards.tolist() == [number for number, size in enumerate(sizes) for _ in range(size)]
    assert records.tolist() == [record for size in sizes for record in range(size)]
