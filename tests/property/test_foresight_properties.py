"""The records that are kept if their next use is known, and the place where a plan's inverse says that a record is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.planner.future import NEVER, Future, expected_hits
from emlio.planner.order import InvertibleOrder, Shuffle, make_order
from emlio.planner.plan import Plan, PlanSpec
from emlio.reading.sharing.kept_records import KeptRecords
from emlio_bench.foresight import Job, compare
from emlio_testing.planning import catalog_of

_SHUFFLES = st.sampled_from(["global", "shard", "none", "block:7:3", "block:256:64", "block:1:1", "block:3:1000"])


@given(st.lists(st.integers(0, 400), min_size=1, max_size=6).filter(any), _SHUFFLES, st.integers(0, 9))
def test_an_order_tells_where_each_record_is(sizes: list[int], shuffle: str, epoch: int) -> None:
    catalog = catalog_of(*sizes)
    order, places = make_order(catalog, Shuffle.parse(shuffle), 3, epoch), np.arange(catalog.records)
    assert isinstance(order, InvertibleOrder)
    assert (order.places(order.ids(places)) == places).all()


@given(
    records=st.integers(8, 300),
    shuffle=_SHUFFLES,
    world_size=st.integers(1, 4),
    batch_size=st.integers(1, 5),
    taken=st.integers(1, 200),
    end=st.sampled_from([None, 1, 2]),
)
def test_the_next_use_is_the_one_of_the_plan(
    records: int, shuffle: str, world_size: int, batch_size: int, taken: int, end: int | None
) -> None:
    """One rank at one place a second: the time until a record's next use is the number of places until then."""
    spec = PlanSpec(
        seed=5, shuffle=Shuffle.parse(shuffle), batch_size=batch_size, world_size=world_size, drop_last=True
    )
    if batch_size * world_size > records:
        return
    plan = Plan(catalog_of(records), spec)
    rank, future = world_size - 1, Future(plan)
    epochs = [plan.epoch(number) for number in range(2)]
    coming: list[tuple[int, int]] = []  # record, and the place counted through both epochs
    for number, one in enumerate(epochs):
        slots = one.slots(rank)
        ids, places = one.ids(rank, 0, slots), one.places(rank, 0, slots)
        coming += zip(ids.tolist(), (places + number * records).tolist(), strict=True)
    taken = min(taken, epochs[0].slots(rank))
    future.begin(rank, 0, 0, 0, end, 0)
    last, at = coming[taken - 1]
    first = int(epochs[0].places(rank, 0, 1)[0])
    now_ns = (at + 1 - first) * 1_000_000_000
    future.moved(rank, 0, last, now_ns)
    found = future.seconds_until(np.arange(records), now_ns)
    for record in range(records):
        uses = [
            place - at - 1 for one, place in coming[taken:] if one == record and (end is None or place < end * records)
        ]
        # Beyond the second epoch nothing is looked at; a rank gets each record of its own part once an epoch.
        assert found[record] == (pytest.approx(uses[0]) if uses else NEVER)


def test_a_rank_that_stands_still_is_left_out() -> None:
    future = Future(Plan(catalog_of(100), PlanSpec(batch_size=1)))
    future.begin(0, 0, 0, 0, None, 0)
    ids = np.arange(100)
    assert np.isfinite(future.seconds_until(ids, 1_000_000_000)).all()
    assert not np.isfinite(future.seconds_until(ids, 3_000_000_000)).any()
    future.moved(0, 0, int(future.plan.epoch(0).ids(0, 0, 1)[0]), 3_000_000_000)
    assert np.isfinite(future.seconds_until(ids, 4_000_000_000)).all()
    future.leave(0)
    future.moved(0, 0, 5, 4_000_000_000)
    assert not np.isfinite(future.seconds_until(ids, 4_000_000_000)).any()


@pytest.mark.timeout(20)
def test_ranks_may_be_any_number_of_epochs_apart() -> None:
    plan, far = Plan(catalog_of(100), PlanSpec(batch_size=1, world_size=2)), 1 << 30
    future = Future(plan)
    future.begin(0, 0, 0, 0, 1, 0)
    future.begin(1, far, 0, 0, far + 1, 0)
    needed = np.union1d(plan.epoch(0).ids(0, 0, 50), plan.epoch(far).ids(1, 0, 50))
    found = np.flatnonzero(np.isfinite(future.seconds_until(np.arange(100), 0)))
    assert found.tolist() == needed.tolist()


_OFFERS = st.lists(
    st.tuples(st.integers(0, 29), st.integers(1, 4), st.integers(0, 50), st.booleans()), min_size=1, max_size=8
)


@given(st.integers(1, 40), st.lists(_OFFERS, max_size=30))
def test_what_is_kept_is_needed_sooner_than_what_is_not(
    pages: int, history: list[list[tuple[int, int, int, bool]]]
) -> None:
    kept = KeptRecords(30, pages)
    known: dict[int, tuple[int, float]] = {}  # the pages and the time of each record that is kept
    for offers in history:
        unique = {number: (count, float(due) if needed else NEVER) for number, count, due, needed in offers}
        new = {number: one for number, one in unique.items() if number not in known}
        numbers = np.array(list(new), np.int64)
        counts = np.array([count for count, _ in new.values()], np.int64)
        due = np.array([when for _, when in new.values()])
        if kept.must_order(counts):
            kept.order()
        entries = kept.admit(numbers, counts, due)
        before, known = known, {}
        for number, entry in enumerate(kept.find(np.arange(30)).tolist()):
            if entry >= 0:
                known[number] = (before | new)[number]
                assert kept.numbers(np.array([entry]))[0] == number
                assert kept.due(np.array([entry]))[0] == known[number][1]
        assert {
            number for number, entry in zip(new, entries.tolist(), strict=True) if entry >= 0
        } == new.keys() & known.keys()
        dropped, refused = before.keys() - known.keys(), new.keys() - known.keys()
        soonest = min((before[number][1] for number in dropped), default=NEVER)
        assert all(known[number][1] < soonest for number in new.keys() & known.keys() if dropped)
        assert all(
            new[number][1] >= max((known[one][1] for one in new.keys() & known.keys()), default=0) for number in refused
        )
        counted, held = kept.pages_of(kept.find(np.array(list(known), np.int64)))
        assert counted.tolist() == [count for count, _ in known.values()]
        assert len(np.unique(held)) == len(held) == kept.pages - kept.free <= pages
        assert len(kept) == len(known)
        some = np.array(sorted(known)[::2], np.int64)
        kept.retime(kept.find(some), np.full(len(some), 25.0))
        known.update((number, (known[number][0], 25.0)) for number in some.tolist())


def test_what_is_held_is_not_dropped() -> None:
    kept, one = KeptRecords(9, 2), np.ones(1, np.int64)
    (entry,) = kept.admit(np.array([4]), 2 * one, np.array([9.0]))
    held = np.array([entry, entry])
    kept.hold(held)
    for _ in range(2):
        if kept.must_order(one):
            kept.order()
        assert kept.admit(np.array([5]), one, np.array([1.0]))[0] == -1
    kept.let_go(held)
    assert kept.must_order(one)
    kept.order()
    assert kept.admit(np.array([5]), one, np.array([1.0]))[0] >= 0


def test_a_record_of_very_many_pages_is_not_kept() -> None:
    kept = KeptRecords(2, 1000)
    assert kept.admit(np.array([0, 1]), np.array([300, 200]), np.array([1.0, 2.0])).tolist()[0] == -1
    assert len(kept) == 1


_THIRD = {"records": 3000, "kept": 1000}


def test_four_jobs_at_one_pace_read_little_more_than_the_optimum() -> None:
    found = compare([Job(seed=seed) for seed in range(4)], **_THIRD)
    assert found.ours <= 0.65 * found.lru
    assert found.ours <= 1.1 * found.best


@pytest.mark.parametrize(
    "jobs",
    [
        [Job(seed=0), Job(seed=1, begins_s=1.2)],
        [Job(seed=0, epochs=3), Job(seed=0, epochs=3, begins_s=0.3)],
        [*(Job(seed=seed) for seed in range(3)), Job(seed=3, pace=100, epochs=1)],
        [*(Job(seed=seed, epochs=3) for seed in range(3)), Job(seed=3, stops_s=4.5)],
    ],
    ids=["begun apart", "one order, begun apart", "one slow", "one stops"],
)
def test_other_jobs_too(jobs: list[Job]) -> None:
    found = compare(jobs, **_THIRD)
    assert found.best <= found.ours <= 1.2 * found.best
    assert found.ours < found.lru


@settings(max_examples=10, deadline=None)
@given(st.lists(st.builds(Job, seed=st.integers(0, 2), pace=st.sampled_from([300.0, 1000.0])), min_size=1, max_size=4))
def test_the_optimum_is_the_least(jobs: list[Job]) -> None:
    found = compare(jobs, records=300, kept=60, batch=4)
    assert found.best <= min(found.ours, found.lru)
    assert found.best >= 300


def test_the_expected_hits_are_those_of_the_simulation() -> None:
    assert expected_hits(1 / 3, 4) == pytest.approx(0.65, abs=0.02)
    assert expected_hits(0.0, 4) == 0.0
    assert expected_hits(2.0, 2) == pytest.approx(1, abs=0.01)
    hits = [expected_hits(part, 3) for part in (0.01, 0.1, 0.3, 0.6, 1.0)]
    assert hits == sorted(hits)
