import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import EpochPlan, Plan, PlanSpec, walk


def _catalog(*sizes: int) -> Catalog:
    return Catalog(
        shards=tuple(
            ShardEntry(name=f"s{number:06d}", records=size, size_bytes=size, digest="")
            for number, size in enumerate(sizes)
        )
    )


def _epoch(
    records: int, batch: int, world: int, *, origin: int = 0, drop_last: bool = False, pad: bool = False
) -> EpochPlan:
    spec = PlanSpec(
        seed=1,
        shuffle=Shuffle.parse(False),
        batch_size=batch,
        world_size=world,
        drop_last=drop_last,
        pad=pad,
    )
    return Plan(_catalog(records), spec).epoch(0, origin)


def _step(epoch: EpochPlan, step: int) -> list[list[int]]:
    """What each rank gets in a step, in places."""
    return [epoch.places(rank, *epoch.batch_slots(rank, step)).tolist() for rank in range(epoch.spec.world_size)]


def test_a_step_takes_a_run_of_places_and_each_rank_a_run_of_it() -> None:
    epoch = _epoch(24, 3, 4)
    assert epoch.steps == 2
    assert _step(epoch, 0) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert _step(epoch, 1) == [[12, 13, 14], [15, 16, 17], [18, 19, 20], [21, 22, 23]]
    assert epoch.repeated == 0


def test_the_tail_is_shared_out_evenly_larger_runs_first() -> None:
    epoch = _epoch(12 + 9, 3, 4)
    assert epoch.steps == 2
    assert _step(epoch, 1) == [[12, 13, 14], [15, 16], [17, 18], [19, 20]]
    assert [epoch.slots(rank) for rank in range(4)] == [6, 5, 5, 5]
    assert epoch.repeated == 0
    assert [epoch.consumed(step) for step in range(3)] == [0, 12, 21]


def test_with_fewer_places_than_ranks_the_order_begins_again_for_the_rest() -> None:
    epoch = _epoch(14, 3, 4)
    assert _step(epoch, 1) == [[12], [13], [0], [1]]
    assert epoch.repeated == 2
    assert epoch.consumed(2) == 14


def test_ranks_beyond_the_whole_dataset_go_round_it_several_times() -> None:
    epoch = _epoch(2, 5, 7)
    assert epoch.steps == 1
    assert _step(epoch, 0) == [[0], [1], [0], [1], [0], [1], [0]]
    assert epoch.repeated == 5


def test_drop_last_leaves_the_tail_out() -> None:
    epoch = _epoch(23, 3, 4, drop_last=True)
    assert epoch.steps == 1
    assert [epoch.slots(rank) for rank in range(4)] == [3, 3, 3, 3]
    assert epoch.consumed(1) == 12
    assert epoch.repeated == 0


def test_pad_fills_every_batch_by_beginning_again() -> None:
    epoch = _epoch(14, 3, 4, pad=True)
    assert _step(epoch, 1) == [[12, 13, 0], [1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert epoch.repeated == 10
    assert epoch.consumed(2) == 14
    small = _epoch(2, 3, 2, pad=True)
    assert _step(small, 0) == [[0, 1, 0], [1, 0, 1]]
    assert small.repeated == 4


def test_an_epoch_goes_on_from_any_origin() -> None:
    epoch = _epoch(20, 3, 2, origin=7)
    assert epoch.steps == 3
    assert _step(epoch, 0) == [[7, 8, 9], [10, 11, 12]]
    assert _step(epoch, 2) == [[19], [0]]
    assert [epoch.consumed(step) for step in range(4)] == [7, 13, 19, 20]
    assert epoch.repeated == 1


@pytest.mark.parametrize(("drop_last", "pad"), [(False, False), (True, False), (False, True)])
def test_an_epoch_at_its_end_has_no_steps(drop_last: bool, pad: bool) -> None:
    epoch = _epoch(20, 3, 2, origin=20, drop_last=drop_last, pad=pad)
    assert epoch.steps == 0
    assert epoch.repeated == 0
    assert epoch.slots(1) == 0
    assert epoch.consumed(0) == 20
    assert list(walk(epoch, 1)) == []


def test_one_batch_larger_than_the_dataset_is_short() -> None:
    epoch = _epoch(5, 100, 1)
    assert epoch.steps == 1
    assert _step(epoch, 0) == [[0, 1, 2, 3, 4]]


def test_drop_last_that_would_drop_everything_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"11 records .*, got 3 x 4 = 12"):
        _epoch(11, 3, 4, drop_last=True)
    assert _epoch(12, 3, 4, drop_last=True).steps == 1


def test_slots_may_span_batches_and_the_tail() -> None:
    epoch = _epoch(21, 3, 4)
    assert epoch.places(1, 0, 5).tolist() == [3, 4, 5, 15, 16]
    assert epoch.places(1, 2, 4).tolist() == [5, 15]
    assert epoch.places(1, 5, 5).tolist() == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda epoch: epoch.slots(4), r"rank must be in \[0, 4\), got 4"),
        (lambda epoch: epoch.slots(-1), r"rank must be in \[0, 4\), got -1"),
        (lambda epoch: epoch.batch_slots(0, 2), r"step must be in \[0, 2\), got 2"),
        (lambda epoch: epoch.consumed(3), r"step must be in \[0, 2\], got 3"),
        (lambda epoch: epoch.places(1, 0, 6), r"slots of rank 1 must be in \[0, 5\], got 0 to 6"),
        (lambda epoch: epoch.ids(1, 3, 2), r"slots of rank 1 must be in \[0, 5\], got 3 to 2"),
        (lambda epoch: walk(epoch, 1, 6), r"first_slot of rank 1 must be in \[0, 5\], got 6"),
        (lambda epoch: walk(epoch, 4), r"rank must be in"),
        (lambda epoch: walk(epoch, 0, chunk=0), r"chunk must be at least 1, got 0"),
        (lambda epoch: walk(epoch, 0, owned=np.ones(2, dtype=np.bool_)), r"one item for each of 1 shards, got \(2,\)"),
    ],
)
def test_what_lies_outside_the_epoch_is_refused_at_once(call, message: str) -> None:  # noqa: ANN001 - a lambda
    with pytest.raises(ConfigError, match=message):
        call(_epoch(21, 3, 4))


@pytest.mark.parametrize(("epoch", "origin"), [(-1, 0), (2**63, 0), (0, -1), (0, 11)])
def test_an_impossible_epoch_or_origin_is_refused(epoch: int, origin: int) -> None:
    plan = Plan(_catalog(10), PlanSpec(batch_size=2))
    with pytest.raises(ConfigError, match="must be in"):
        plan.epoch(epoch, origin)


@pytest.mark.parametrize(
    ("field", "value"),
    [("seed", -1), ("seed", 2**63), ("batch_size", 0), ("world_size", 0), ("world_size", 2**40)],
)
def test_an_impossible_spec_is_refused(field: str, value: int) -> None:
    fields = {"seed": 0, "batch_size": 2, "world_size": 1} | {field: value}
    with pytest.raises(ConfigError, match=rf"{field}.*got .*{value}"):
        PlanSpec(seed=fields["seed"], batch_size=fields["batch_size"], world_size=fields["world_size"])


def test_the_tail_is_either_dropped_or_filled() -> None:
    with pytest.raises(ConfigError, match="drop_last and pad must not both be True"):
        PlanSpec(batch_size=1, drop_last=True, pad=True)


def test_a_walk_begins_at_any_slot_and_holds_only_the_shards_asked_for() -> None:
    plan = Plan(_catalog(10, 0, 25, 7, 30), PlanSpec(seed=5, batch_size=4, world_size=3))
    epoch = plan.epoch(2)
    owned = np.array([True, True, False, True, False])
    shards, records = plan.catalog.locate(epoch.ids(1, 0, epoch.slots(1)))
    whole = [
        (slot, shard, record)
        for slot, (shard, record) in enumerate(zip(shards.tolist(), records.tolist(), strict=True))
        if owned[shard]
    ]
    for chunk in (1, 3, 16384):
        for first in (0, 1, 7, epoch.slots(1)):
            parts = list(walk(epoch, 1, first, owned, chunk))
            assert all(part[0].size for part in parts)
            walked = [row for part in parts for row in zip(*(array.tolist() for array in part), strict=True)]
            assert walked == [row for row in whole if row[0] >= first]


def test_a_walk_over_a_billion_records_holds_little_memory() -> None:
    plan = Plan(_catalog(*[10**6] * 1000), PlanSpec(seed=5, batch_size=256, world_size=8))
    owned = np.arange(1000) % 3 == 0
    for text in ("global", "block"):
        spec = PlanSpec(seed=5, shuffle=Shuffle.parse(text), batch_size=256, world_size=8)
        epoch = Plan(plan.catalog, spec).epoch(0)
        tracemalloc.start()
        parts = walk(epoch, 3, 10**8, owned)
        found = sum(next(parts)[0].size for _ in range(10))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert 0.31 < found / (10 * 16384) < 0.36
        assert peak < 4_000_000


@given(
    records=st.integers(1, 300),
    block=st.integers(1, 9),
    window=st.integers(1, 7),
    batch=st.integers(1, 9),
    world=st.integers(1, 5),
    origin=st.integers(0, 300),
    least=st.integers(1, 100),
    drop_last=st.booleans(),
)
@example(records=3, block=1, window=1, batch=1, world=2, origin=0, least=2, drop_last=False)
def test_a_window_ends_where_the_records_of_other_blocks_begin(
    records: int, block: int, window: int, batch: int, world: int, origin: int, least: int, *, drop_last: bool
) -> None:
    shuffle = Shuffle.parse(f"block:{block}:{window}")
    assume(not drop_last or batch * world <= records)
    spec = PlanSpec(seed=records, shuffle=shuffle, batch_size=batch, world_size=world, drop_last=drop_last)
    epoch = Plan(_catalog(records), spec).epoch(1, min(origin, records))
    # Which window each block is in: the one of the place at which its records are found.
    whole = Plan(_catalog(records), replace(spec, batch_size=1, world_size=1, drop_last=False)).epoch(1)
    order = whole.ids_at(np.arange(records)) // block
    window_of: dict[int, int] = {}
    for found in order.tolist():
        window_of.setdefault(found, len(window_of) // window)
    several = -(-least // (block * window))
    cuts = np.flatnonzero(np.diff([window_of[found] // several for found in order.tolist()])) + 1
    bounds = [0, *cuts.tolist(), records]
    for rank in range(world):
        slot, slots = 0, epoch.slots(rank)
        while slot < slots:
            found = epoch.windows(rank, slot, least)
            assert found is not None
            first, last, end = found
            assert slot < end <= slots
            places = epoch.places(rank, slot, end)
            of_each = np.searchsorted(cuts, places, side="right")
            assert (of_each == of_each[0]).all()
            assert (first, last) == (bounds[of_each[0]], bounds[of_each[0] + 1])
            following = epoch.places(rank, end, min(end + 1, slots))
            # At the end, full steps may take records of the beginning again.
            again = following <= places[-1:]
            assert (again | (np.searchsorted(cuts, following, side="right") != of_each[0])).all()
            slot = end
