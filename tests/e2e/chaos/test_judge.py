"""The judge of chaos runs, which must see what it is there to see.

Covers: records lost, repeated, disordered, changed; lives that were cut; schedules and recovery times. Does not cover: real runs
(test_chaos.py).
"""

from collections.abc import Callable

import pytest

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.plan import Plan, PlanSpec
from tests.e2e.chaos.faults import Fault, Kind, draw_schedule
from tests.e2e.chaos.injected import Injected
from tests.e2e.chaos.judge import Batch, Life, expected_batches, judge
from tests.e2e.chaos.recovery import measure_recovery

RECORDS, EPOCHS, BATCH_SIZE, SEED = 101, 2, 4, 7
CATALOG = Catalog(shards=(ShardEntry(name="only", records=RECORDS, size_bytes=1, digest="d"),))
CHECKSUMS = [1000 + record for record in range(RECORDS)]
PLAN = Plan(CATALOG, PlanSpec(seed=SEED, batch_size=BATCH_SIZE, world_size=3))
MS = 1_000_000


def state_at(progress: int) -> dict[str, object]:
    """The state after so many places of the whole job; the end of an epoch belongs to it."""
    epoch, consumed = divmod(progress, RECORDS)
    if not consumed and progress:
        epoch, consumed = epoch - 1, RECORDS
    return {
        "version": 1, "fingerprint": CATALOG.fingerprint, "seed": SEED, "shuffle": "global", "epoch": epoch, "consumed": consumed
    }  # fmt: skip


def life(world_size: int, begin: int = 0, end: int | None = None, cut: int | None = None) -> Life:
    """One in which every rank took what it should, up to `end`."""
    plan = Plan(CATALOG, PlanSpec(seed=SEED, batch_size=BATCH_SIZE, world_size=world_size))
    state = state_at(begin) if begin else None
    taken = [
        [
            batch(epoch, ids, progress)
            for epoch, ids, progress in expected_batches(plan, rank, state, EPOCHS)
            if end is None or progress <= end
        ]
        for rank in range(world_size)
    ]
    return Life(world_size=world_size, state=state, taken=taken, cut=cut)


def batch(epoch: int, ids: list[int], progress: int = 0, at_ns: int = 0, waited_ns: int = 0) -> Batch:
    return Batch(
        epoch=epoch,
        ids=ids,
        checksums=[CHECKSUMS[record] for record in ids],
        progress=progress,
        at_ns=at_ns,
        waited_ns=waited_ns,
        state=state_at(progress),
    )


def test_an_undisturbed_job_is_good_and_delivers_every_record_in_each_epoch() -> None:
    verdict = judge([life(3)], PLAN, CHECKSUMS, EPOCHS)
    assert verdict.is_good
    assert verdict.told == []
    # 101 = 8 x 12 + 5: the last step's five are shared out among three ranks.
    assert verdict.delivered == RECORDS * EPOCHS


def lose(taken: list[Batch]) -> None:
    del taken[3]


def repeat(taken: list[Batch]) -> None:
    taken.insert(4, taken[3])


def swap(taken: list[Batch]) -> None:
    taken[2], taken[3] = taken[3], taken[2]


def change(taken: list[Batch]) -> None:
    old = taken[5]
    taken[5] = batch(old.epoch, list(old.ids), old.progress)
    taken[5].checksums[1] += 1  # type: ignore[index]  # a list, in this test


def end_early(taken: list[Batch]) -> None:
    taken.pop()


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        (lose, {"lost": 4, "repeated": 0, "changed": 0}),
        (repeat, {"lost": 0, "repeated": 4, "changed": 0}),
        (swap, {"lost": 0, "repeated": 0, "disordered": 1, "changed": 0}),
        (change, {"lost": 0, "repeated": 0, "disordered": 0, "changed": 1}),
        (end_early, {"lost": 2, "repeated": 0, "disordered": 0, "changed": 0}),
    ],
)
def test_every_harm_is_seen_and_told(harm: Callable[[list[Batch]], None], found: dict[str, int]) -> None:
    job = life(3)
    harm(job.taken[1])
    verdict = judge([job], PLAN, CHECKSUMS, EPOCHS)
    assert not verdict.is_good
    assert {name: getattr(verdict, name) for name in found} == found
    assert "rank 1 of 3" in verdict.told[0]


def test_of_a_rank_that_ended_with_an_error_only_what_it_took_is_judged() -> None:
    job = life(3)
    end_early(job.taken[1])
    job.unfinished.add(1)
    assert judge([job], PLAN, CHECKSUMS, EPOCHS).is_good
    lose(job.taken[1])
    assert not judge([job], PLAN, CHECKSUMS, EPOCHS).is_good


def test_lives_with_other_numbers_of_ranks_join_at_their_cuts() -> None:
    # Three ranks do five steps (60 places), some a sixth; two go on from 60 into the next epoch, three end it.
    first, second = life(3, end=60, cut=60), life(2, begin=60, end=RECORDS + 40, cut=RECORDS + 40)
    ahead = life(3, end=72)
    first.taken[2] = ahead.taken[2]
    third = life(3, begin=RECORDS + 40)
    verdict = judge([first, second, third], PLAN, CHECKSUMS, EPOCHS)
    assert verdict.is_good, verdict.told
    # The step that was not saved is done again. Two ranks, and then three, share a last step of one record: 1 and 2 times more.
    assert verdict.delivered == RECORDS * EPOCHS + BATCH_SIZE + 1 + 2


def test_a_rank_that_had_less_than_the_cut_has_lost_something() -> None:
    first = life(3, end=60, cut=60)
    first.taken[0].pop()
    verdict = judge([first, life(2, begin=60)], PLAN, CHECKSUMS, EPOCHS)
    assert (verdict.lost, verdict.repeated) == (BATCH_SIZE, 0)


def test_a_life_that_begins_elsewhere_than_at_its_state_is_seen() -> None:
    job = life(3, begin=60)
    job.state = state_at(48)
    assert not judge([job], PLAN, CHECKSUMS, EPOCHS).is_good


def test_a_seed_draws_the_same_faults_each_time_and_all_kinds_come_up() -> None:
    drawn = [draw_schedule(seed, list(Kind)) for seed in range(200)]
    assert drawn == [draw_schedule(seed, list(Kind)) for seed in range(200)]
    assert all(2 <= len(schedule) <= 4 for schedule in drawn)
    assert {fault.kind for schedule in drawn for fault in schedule} == set(Kind)
    assert all(sum(fault.kind.of_shard for fault in schedule) <= 1 for schedule in drawn)


def test_what_a_machine_cannot_do_changes_nothing_else_of_a_schedule() -> None:
    cannot = {Kind.DISK_FULL, Kind.CLOCK_JUMP}
    for seed in range(100):
        whole, rest = draw_schedule(seed, list(Kind)), draw_schedule(seed, list(Kind), cannot)
        assert not cannot & {fault.kind for fault in rest}
        assert [fault.at for fault in whole] == [fault.at for fault in rest]
        assert [fault for fault in whole if fault.kind not in cannot] == [
            kept for fault, kept in zip(whole, rest, strict=True) if fault.kind not in cannot
        ]


def event(kind: Kind, at_ms: int) -> Injected:
    fault = Fault(kind=kind, at=0.5, rank=0, host=0, duration_s=1.0, amount=0)
    return Injected(fault=fault, begun_ns=at_ms * MS, from_ns=at_ms * MS)


def took(at_ms: int, waited_ms: int) -> Batch:
    return batch(0, [1], at_ns=at_ms * MS, waited_ns=waited_ms * MS)


def test_recovery_counts_to_the_next_batch_of_the_slowest_rank_that_waited() -> None:
    ranks = [[took(990, 1), took(1300, 250), took(1310, 1)], [took(1010, 5), took(1700, 400)]]
    (found,) = measure_recovery([event(Kind.DAEMON_KILL, 1000)], ranks, [[], []])
    assert (found.recovered_ms, found.waited_ms, found.felt) == (700.0, 400.0, True)


def test_recovery_counts_from_the_first_daemon_that_can_be_reached_again() -> None:
    outages = [[(900 * MS, 1500 * MS)], [(1000 * MS, 1200 * MS)]]
    (found,) = measure_recovery([event(Kind.DAEMONS_BOTH, 1000)], [[took(1450, 420)]], outages)
    assert found.recovered_ms == 250.0


def test_a_fault_that_nobody_waited_for_counts_as_zero_and_a_later_one_s_wait_is_not_its() -> None:
    first, second = measure_recovery(
        [event(Kind.NET_RESET, 1000), event(Kind.NET_CUT, 1100)], [[took(1050, 10), took(1400, 200)]], [[], []]
    )
    assert (first.recovered_ms, first.felt) == (0.0, False)
    assert (second.recovered_ms, second.waited_ms) == (300.0, 200.0)
