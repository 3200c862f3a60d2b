"""What streams owe, beside a list of all places."""

import tracemalloc
from functools import lru_cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.receiver.placement.epoch_places import EpochPlaces
from emlio.receiver.placement.reorder import Reorder
from emlio.receiver.placement.schedule import PlanSchedule
from emlio.session.credits import Place

STREAMS = 3


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Plan, Reorder, list[int]]:
    counts = draw(st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any))
    shards = tuple(
        ShardEntry(name=f"{number:03d}", records=records, size_bytes=records * draw(st.integers(16, 90)), digest="d")
        for number, records in enumerate(counts)
    )
    shuffle = Shuffle.parse(draw(st.sampled_from(["none", "shard", "global"])))
    plan = Plan(Catalog(shards=shards), PlanSpec(batch_size=draw(st.integers(1, 9)), shuffle=shuffle))
    owners = draw(st.lists(st.integers(0, STREAMS - 1), min_size=len(shards), max_size=len(shards)))
    reorder = Reorder(
        plan=plan, rank=0, owners=np.array(owners), streams=["a", "b", "c"], epoch=0, origin=0, in_order=True
    )
    return plan, reorder, owners


def all_places(plan: Plan, epochs: int) -> list[tuple[Place, int, int]]:
    """Each place, the shard of its record, and the record's size as it is thought to be."""
    sizes = [shard.size_bytes // max(shard.records, 1) for shard in plan.catalog.shards]
    found: list[tuple[Place, int, int]] = []
    for epoch in range(epochs):
        ids = plan.epoch(epoch, 0).ids(0, 0, plan.epoch(epoch, 0).slots(0))
        for slot, shard in enumerate(plan.catalog.locate(ids)[0].tolist()):
            found.append(((epoch, slot), shard, sizes[shard]))
    return found


@given(worlds(), st.data())
def test_what_is_owed_is_the_sum_over_its_places(world: tuple[Plan, Reorder, list[int]], data: st.DataObject) -> None:
    plan, reorder, owners = world
    listed = all_places(plan, 3)
    at = st.sampled_from([place for place, _, _ in listed])
    begin, end = sorted((data.draw(at), data.draw(at)))
    schedule = PlanSchedule(plan.catalog, reorder.places)
    for stream in range(STREAMS):
        inside = [size for place, shard, size in listed if begin <= place < end and owners[shard] == stream]
        owed = schedule.owed(stream, begin, end)
        assert (owed.records, owed.size_bytes) == (len(inside), sum(inside))


@given(worlds(), st.integers(0, 5000), st.data(), st.sampled_from([None, 1, 2]))
def test_so_many_bytes_lie_up_to_the_place_after(
    world: tuple[Plan, Reorder, list[int]], size_bytes: int, data: st.DataObject, epochs: int | None
) -> None:
    plan, reorder, _ = world
    listed = all_places(plan, 2 if epochs is None else epochs)
    begin = data.draw(st.sampled_from([place for place, _, _ in listed if place[0] == 0]))
    found = PlanSchedule(plan.catalog, reorder.places, epochs).place_after(begin, size_bytes)
    inside = [size for place, _, size in listed if begin <= place < found]
    beyond = [size for place, _, size in listed if place >= found]
    assert sum(inside) <= size_bytes or len(inside) == 1
    assert inside
    assert not beyond or sum(inside) + beyond[0] > size_bytes
    assert beyond or found == (2 if epochs is None else epochs, 0)


@given(worlds(), st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1), st.integers(0, 5000)), max_size=8))
def test_the_same_is_found_whatever_was_asked_before(
    world: tuple[Plan, Reorder, list[int]], asked: list[tuple[int, float, int]]
) -> None:
    plan, reorder, _ = world
    one = PlanSchedule(plan.catalog, reorder.places)
    for epoch, part, size_bytes in asked:
        place = epoch, int(part * reorder.places(epoch).slots)
        assert one.place_after(place, size_bytes) == PlanSchedule(plan.catalog, reorder.places).place_after(
            place, size_bytes
        )


def test_a_schedule_of_many_epochs_needs_no_more_memory_than_of_a_few() -> None:
    records = 10_000
    catalog = Catalog(shards=(ShardEntry(name="000", records=records, size_bytes=100 * records, digest="d"),))
    plan = Plan(catalog, PlanSpec(batch_size=100))

    @lru_cache(maxsize=2)
    def places(epoch: int) -> EpochPlaces:
        return EpochPlaces(plan.epoch(epoch, 0), 0, np.zeros(1, np.int64), 1)

    schedule = PlanSchedule(catalog, places)

    def used_after(epochs: range) -> int:
        for epoch in epochs:
            for slot in range(0, records, 1000):
                assert schedule.place_after((epoch, slot), 200_000) > (epoch, slot)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        early = used_after(range(3))
        assert used_after(range(3, 20)) - early < 8 * records, "the sums of a single epoch"
    finally:
        tracemalloc.stop()
