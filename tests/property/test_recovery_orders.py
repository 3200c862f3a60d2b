"""Whatever goes wrong, and in whatever order: the planned records, each once, in the plan's order, and the job goes on.

Covers: the rank's machine with simulated daemons and connections, in random orders of events; epochs that are shared out anew
among other numbers of ranks. Does not cover: sockets and processes (tests/e2e), every order there is (tests/model).
"""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from simulated_job import FAULTS, Fault, SimulatedJob

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle, make_order
from emlio.planner.plan import Plan, PlanSpec
from emlio.receiver.addresses.known_path import KnownPath
from emlio.receiver.machine.lane_set import LaneReader, LaneSet
from emlio.receiver.machine.shard_assignment import ShardAssignment
from emlio.receiver.placement.grants import Grants
from emlio.receiver.placement.reorder import LaneOrder, Reorder, WholeBatch

_SHUFFLES = st.sampled_from(["global", "block:3:2", "shard", "none"]).map(Shuffle.parse)

_BOUNDS = st.sampled_from([1, 100, 1000, 100_000, 1 << 20])
_KNOWN = st.sampled_from([None, None, KnownPath(lanes=2, offset=1), KnownPath(lanes=1, offset=2)])
"""What the rank remembers of the paths; some of it is wrong."""

_FAULTS = st.lists(
    st.builds(
        Fault,
        step=st.integers(0, 60),
        what=st.sampled_from(FAULTS),
        daemon=st.integers(0, 2),
        steps=st.integers(1, 120),
    ),
    min_size=1,
    max_size=8,
)


@st.composite
def _datasets(draw: st.DrawFn) -> tuple[Catalog, list[list[int]]]:
    """A few shards, and the daemons that hold each."""
    counts = [draw(st.integers(8, 30)), *draw(st.lists(st.integers(0, 30), max_size=4))]
    shards = tuple(
        ShardEntry(name=f"s{number}", records=records, size_bytes=records * 24, digest=f"{number:032x}")
        for number, records in enumerate(counts)
    )
    most = draw(st.integers(1, 3))
    some = st.lists(st.integers(0, most - 1), min_size=1, max_size=most, unique=True)
    holders = draw(st.lists(some, min_size=len(shards), max_size=len(shards)))
    # A daemon that holds nothing of a dataset does not serve it.
    used = sorted({daemon for daemons in holders for daemon in daemons})
    return Catalog(shards=shards), [[used.index(daemon) for daemon in daemons] for daemons in holders]


@st.composite
def _plans(draw: st.DrawFn) -> tuple[Plan, list[list[int]]]:
    """A plan, and the daemons that hold each shard."""
    catalog, holders = draw(_datasets())
    spec = PlanSpec(
        seed=draw(st.integers(0, 3)),
        shuffle=draw(_SHUFFLES),
        batch_size=draw(st.integers(1, 4)),
        world_size=draw(st.integers(1, 2)),
        pad=draw(st.booleans()),
    )
    return Plan(catalog, spec), holders


def _content(batch: WholeBatch) -> list[int]:
    """The numbers that the batch's records hold, by place."""
    found: dict[int, int] = {}
    for piece in batch.pieces:
        for start, end, slot in zip(piece.starts.tolist(), piece.ends.tolist(), piece.slots.tolist(), strict=True):
            assert slot not in found
            found[slot] = int.from_bytes(piece.buffer[start : min(start + 8, end)], "little")
    return [found[slot] for slot in range(batch.count)]


def _planned(plan: Plan, rank: int, epoch: int, origin: int, epochs: int) -> list[tuple[int, int, list[int]]]:
    found: list[tuple[int, int, list[int]]] = []
    for number in range(epoch, epoch + epochs):
        at = plan.epoch(number, origin if number == epoch else 0)
        found += [(number, step, at.ids(rank, *at.batch_slots(rank, step)).tolist()) for step in range(at.steps)]
    return found


@given(_plans(), _FAULTS, st.sampled_from([0, 0, 60_000]), st.integers(0, 2**32), st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_goes_wrong_every_record_of_two_epochs_comes_once_and_in_order(
    planned: tuple[Plan, list[list[int]]], faults: list[Fault], size: int, seed: int, data: st.DataObject
) -> None:
    plan, holders = planned
    rank = data.draw(st.integers(0, plan.spec.world_size - 1))
    # From the beginning on the orders ride with the offers.
    epoch, origin = data.draw(st.sampled_from([(0, 0), (1, 0), (1, plan.catalog.records // 2)]))
    due = _planned(plan, rank, epoch, origin, 2)
    job = SimulatedJob(
        plan=plan,
        rank=rank,
        holders=holders,
        size=size,
        seed=seed,
        round_trip_ns=data.draw(st.sampled_from([None, 30_000_000])),
        bound_bytes=data.draw(_BOUNDS),
        known=data.draw(_KNOWN),
    )
    came = job.run(epoch=epoch, origin=origin, batches=len(due), faults=faults)
    assert [(batch.epoch, batch.step, batch.ids.tolist()) for batch in came] == due
    assert [_content(batch) for batch in came] == [ids for _, _, ids in due]
    assert not any(batch.bad for batch in came)
    event(f"{min(job.reopened, 10)} streams opened again")


@given(_plans(), st.integers(0, 2**32), st.booleans(), _BOUNDS, _KNOWN)
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
def test_where_nothing_goes_wrong_nobody_is_taken_for_lost_and_all_first_orders_ride_with_the_offer(
    planned: tuple[Plan, list[list[int]]], seed: int, far: bool, bound_bytes: int, known: KnownPath | None
) -> None:
    plan, holders = planned
    due = _planned(plan, 0, 0, 0, 1)
    job = SimulatedJob(
        plan=plan,
        rank=0,
        holders=holders,
        size=0,
        seed=seed,
        round_trip_ns=30_000_000 if far else None,
        bound_bytes=bound_bytes,
        known=known,
    )
    came = job.run(epoch=0, origin=0, batches=len(due), faults=[])
    assert [_content(batch) for batch in came] == [ids for _, _, ids in due]
    assert (job.lost, job.reopened) == (0, 0)
    for daemon in job.daemons:
        assert daemon.opened == daemon.ridden <= 1


@pytest.mark.parametrize("seed", range(20))
def test_a_daemon_that_leaves_while_the_other_is_away_is_not_taken_for_one_that_breaks_the_plan(
    seed: int,
) -> None:
    """Its last messages are on their way when the shards are shared out among those that will come back."""
    shards = tuple(ShardEntry(name=f"s{n}", records=30, size_bytes=720, digest=f"{n:032x}") for n in range(4))
    plan = Plan(Catalog(shards=shards), PlanSpec(seed=1, batch_size=2))
    due = _planned(plan, 0, 0, 0, 2)
    job = SimulatedJob(plan=plan, rank=0, holders=[[0, 1]] * 4, size=80_000, seed=seed)
    crash = Fault(step=5, what="crash", daemon=1, steps=200)
    came = job.run(
        epoch=0, origin=0, batches=len(due), faults=[crash, Fault(step=37, what="leave", daemon=0, steps=60)]
    )
    assert [_content(batch) for batch in came] == [ids for _, _, ids in due]
    assert [line for line in job.rank.notes if "of the plan" in line or "are not the next of this stream" in line] == []


@pytest.mark.parametrize("seed", range(10))
def test_credit_that_was_lost_with_a_lane_that_never_came_up_is_said_again(seed: int) -> None:
    """One daemon's records come first. When the user needs the other's, its lanes cannot be had for a moment."""
    shards = tuple(ShardEntry(name=f"s{n}", records=6, size_bytes=144, digest=f"{n:032x}") for n in range(2))
    plan = Plan(Catalog(shards=shards), PlanSpec(seed=0, shuffle=Shuffle.parse("none"), batch_size=2))
    due = _planned(plan, 0, 1, 0, 1)
    job = SimulatedJob(plan=plan, rank=0, holders=[[0], [1]], size=0, seed=seed, bound_bytes=48)
    came = job.run(
        epoch=1, origin=0, batches=len(due), faults=[Fault(step=0, what="no lanes", daemon=1, steps=30 + seed)]
    )
    assert [_content(batch) for batch in came] == [ids for _, _, ids in due]


@pytest.mark.parametrize("seed", range(5))
def test_a_daemon_slower_to_answer_than_its_heartbeat_is_lost_a_few_times_and_then_waited_for(seed: int) -> None:
    shards = tuple(ShardEntry(name=f"s{n}", records=30, size_bytes=720, digest=f"{n:032x}") for n in range(4))
    plan = Plan(Catalog(shards=shards), PlanSpec(seed=1, batch_size=2))
    due = _planned(plan, 0, 0, 0, 2)
    job = SimulatedJob(plan=plan, rank=0, holders=[[0]] * 4, size=0, seed=seed, delay_ns=900_000_000)
    came = job.run(epoch=0, origin=0, batches=len(due), faults=[])
    assert [_content(batch) for batch in came] == [ids for _, _, ids in due]
    assert 1 <= job.lost <= 4


def test_one_that_is_asked_for_nothing_is_missed_as_soon_each_time() -> None:
    """It sends nothing whether it is well or not: that says nothing of how quick it is."""
    plan = Plan(
        Catalog(shards=(ShardEntry(name="s", records=400, size_bytes=9600, digest=f"{1:032x}"),)),
        PlanSpec(seed=1, batch_size=1),
    )
    for idle in range(2):
        job = SimulatedJob(plan=plan, rank=0, holders=[[0, 1]], size=0, seed=idle)
        freezes = [Fault(step=step, what="freeze", daemon=idle, steps=70) for step in (60, 260, 460, 660)]
        came = job.run(epoch=0, origin=0, batches=400, faults=freezes)
        assert [_content(batch) for batch in came] == [ids for _, _, ids in _planned(plan, 0, 0, 0, 1)]
        silences = [line for line in job.rank.notes if f"10.0.0.{idle + 1}:5555 is lost" in line]
        assert len(silences) == len(freezes), "a freeze was not noticed, since it was given longer"
        assert all("within 1 s" in line for line in silences)


@given(
    _datasets(),
    _SHUFFLES,
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 5)), min_size=2, max_size=3),
    _FAULTS,
    st.integers(0, 2**32),
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
def test_ranks_may_become_more_or_fewer_amid_faults_and_each_record_of_the_epoch_still_comes_once(
    dataset: tuple[Catalog, list[list[int]]],
    shuffle: Shuffle,
    parts: list[tuple[int, int, int]],
    faults: list[Fault],
    seed: int,
) -> None:
    catalog, holders = dataset
    came: Counter[int] = Counter()
    origin = repeated = 0
    for number, (batch, world, wanted) in enumerate(parts):
        plan = Plan(catalog, PlanSpec(seed=5, shuffle=shuffle, batch_size=batch, world_size=world))
        epoch = plan.epoch(2, origin)
        is_last = number == len(parts) - 1
        # Only full steps before the last part: the tail ends an epoch.
        steps = epoch.steps if is_last else min(wanted, (catalog.records - origin) // (batch * world))
        for rank in range(world if steps else 0):
            job = SimulatedJob(plan=plan, rank=rank, holders=holders, size=0, seed=seed + rank)
            for given_out in job.run(epoch=2, origin=origin, batches=steps, faults=faults[rank::world]):
                came.update(_content(given_out))
        origin, repeated = epoch.consumed(steps), epoch.repeated if is_last else 0
    assert origin == catalog.records
    assert set(came) == set(make_order(catalog, shuffle, 5, 2).ids(np.arange(catalog.records)).tolist())
    assert sum(came.values()) == catalog.records + repeated


# ---- the simulation can fail ----------------------------------------------------------------------------------------


def _first_missing_but_one(patch: pytest.MonkeyPatch) -> None:
    real: Callable[[Reorder, int], tuple[int, int]] = Reorder.first_missing

    def wrong(reorder: Reorder, stream: int) -> tuple[int, int]:
        epoch, slot = real(reorder, stream)
        return epoch, slot + 1

    patch.setattr(Reorder, "first_missing", wrong)


def _nobody_looks_for_gaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LaneOrder, "check", lambda order, lane, sequence: None)
    patch.setattr(ShardAssignment, "watch", lambda assignment, hungry: None)


def _lost_daemons_are_not_replaced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShardAssignment, "share_out", lambda assignment, also=None: None)


def _lanes_count_nothing_as_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LaneReader, "read_bytes", property(lambda tap: 0, lambda tap, value: None), raising=False)


def _nothing_is_needed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Grants, "need", lambda grants, must: None)


def _lanes_are_not_replaced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        LaneSet, "missing", property(lambda lanes: lanes.wanted if not len(lanes) and not lanes._next_number else 0)
    )


@pytest.mark.parametrize(
    ("leave_out", "what", "bound_bytes"),
    [
        (_first_missing_but_one, "crash, and lose", 1),
        (_nobody_looks_for_gaps, "lose", 1 << 20),
        (_lost_daemons_are_not_replaced, "crash", 1),
        (_lanes_count_nothing_as_read, "freeze", 1),
        (_nothing_is_needed, "freeze", 1),
        (_lanes_are_not_replaced, "cut lanes", 1),
    ],
)
def test_with_a_rule_left_out_some_order_of_events_does_not_bring_everything(
    leave_out: Callable[[pytest.MonkeyPatch], None], what: str, bound_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out(monkeypatch)
    shards = tuple(ShardEntry(name=f"s{n}", records=20, size_bytes=480, digest=f"{n:032x}") for n in range(3))
    plan = Plan(Catalog(shards=shards), PlanSpec(seed=1, batch_size=2))
    due = _planned(plan, 0, 1, 0, 1)
    for seed in range(10):
        job = SimulatedJob(plan=plan, rank=0, holders=[[0], [0, 1], [1]], size=0, seed=seed, bound_bytes=bound_bytes)
        faults = [Fault(step=seed, what=what, daemon=0, steps=20)]
        try:
            came = job.run(epoch=1, origin=0, batches=len(due), faults=faults)
            assert [_content(batch) for batch in came] == [ids for _, _, ids in due]
        except AssertionError:
            return
    pytest.fail("ten orders of events brought everything")
