"""An epoch in token batches: golden, lazy, small datasets, what padding costs."""

import hashlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from emlio.errors import ConfigError, DatasetError, PlanError
from emlio.planner.plan import Plan
from emlio.planner.spec import PlanSpec
from emlio.planner.tokens.epoch import TokenBatch, TokenEpoch, TokenShare
from emlio.planner.tokens.lengths import padding_waste
from emlio.planner.tokens.packed import Packed
from emlio.planner.tokens.padded import Padded
from emlio.planner.tokens.plan import TokenPlan
from emlio_testing.planning import catalog_of

_BOUND = Padded(max_tokens=16384)


def _lengths(count: int, seed: int = 7) -> npt.NDArray[np.int32]:
    drawn = np.exp(np.random.default_rng(seed).normal(np.log(200), 0.9, count))
    return np.clip(drawn, 1, 4096).astype(np.int32)


def _plan(
    lengths: npt.NDArray[np.int32] | list[int], cut: Padded | Packed, *, pool: int, world: int = 1, seed: int = 7
) -> TokenPlan:
    spec = PlanSpec(seed=seed, batch_size=pool, world_size=world)
    return TokenPlan(
        Plan(catalog_of((half := len(lengths) // 2), len(lengths) - half), spec),
        cut,
        np.array(lengths, dtype=np.int32),
    )


def _batches(epoch: TokenEpoch, world: int) -> Iterator[tuple[TokenShare, TokenBatch]]:
    """All batches, step by step and rank by rank."""
    shares: list[TokenShare] = []
    for step in range(epoch.steps):
        if not shares or shares[0].group != epoch.group(step):
            shares = [epoch.share(rank, epoch.group(step)) for rank in range(world)]
        yield from ((share, share.batches[epoch.step_in_group(step)]) for share in shares)


def _ids(epoch: TokenEpoch, world: int = 1) -> list[npt.NDArray[np.int64]]:
    return [share.ids[batch.records] for share, batch in _batches(epoch, world)]


def _digest(epoch: TokenEpoch, world: int) -> str:
    state = hashlib.sha256()
    for share, batch in _batches(epoch, world):
        for array in (share.ids[batch.records], batch.begins, batch.ends, batch.rows, batch.columns):
            state.update(array.astype("<i8").tobytes() + b"/")
    return state.hexdigest()[:16]


@pytest.mark.parametrize(
    ("cut", "steps", "digest"),
    [(Padded(max_tokens=400), 43, "adbd6ca7d573af1a"), (Packed(row_tokens=100, rows=3), 45, "6b9d57a2290953c4")],
)
def test_an_epoch_is_the_same_on_every_machine(cut: Padded | Packed, steps: int, digest: str) -> None:
    lengths = [1 + number * number % 151 for number in range(500)]
    epoch = _plan(lengths, cut, pool=40, world=3).epoch(4)
    assert (epoch.steps, _digest(epoch, 3)) == (steps, digest)


@pytest.mark.parametrize(("pool", "most"), [(1024, 0.10), (4096, 0.04)])
def test_padding_is_a_small_part_of_what_random_batches_have(pool: int, most: float) -> None:
    lengths = _lengths(20_000)
    plan = _plan(lengths, _BOUND, pool=pool)
    batches = _ids(plan.epoch(0))
    random = np.array_split(np.random.default_rng(1).permutation(20_000), len(batches))
    ours, theirs = padding_waste(lengths, batches), padding_waste(lengths, random)
    assert theirs > 0.7
    assert ours < most
    places = [len(batch) * int(lengths[batch].max()) for batch in batches]
    assert max(places) <= 16384


def test_at_one_step_all_ranks_hold_records_of_similar_length() -> None:
    plan = _plan(_lengths(32_768), _BOUND, pool=1024, world=8)
    epoch = plan.epoch(0)
    shares = [epoch.share(rank, epoch.group(0)) for rank in range(8)]
    widths = np.array([[batch.width for batch in share.batches] for share in shares])
    assert np.median(widths.max(axis=0) / widths.min(axis=0)) < 1.3
    assert np.median(widths.max(axis=1) / widths.min(axis=1)) > 10  # over the steps they differ much more
    assert any(np.diff(widths[0]) < 0)
    assert any(np.diff(widths[0]) > 0)


def test_each_pool_and_epoch_has_an_order_of_its_own() -> None:
    plan = _plan(np.tile(_lengths(500), 4), _BOUND, pool=500)
    orders = set()
    for number in range(3):
        epoch = plan.epoch(number)
        step = 0
        while step < epoch.steps:
            group = epoch.group(step)
            widths = [batch.width for batch in epoch.share(0, group).batches]
            orders.add(tuple(np.argsort(widths).tolist()))
            step += group.batches
    assert len(orders) == 12


def test_a_few_batches_cost_a_few_pools() -> None:
    asked: list[int] = []

    class Watched(Padded):
        def needed(self, lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
            asked.append(len(lengths))
            return super().needed(lengths)

    epoch = _plan(_lengths(40_000), Watched(max_tokens=16384), pool=100, world=4).epoch(0)
    epoch.group(0)
    assert sum(asked) == 4
    epoch.state(5)
    assert sum(asked) <= 12
    assert epoch.steps > 300
    assert sum(asked) == 400
    epoch.group(epoch.steps - 1)
    assert sum(asked) == 400


@pytest.mark.parametrize("cut", [_BOUND, Packed(row_tokens=64, rows=2)])
@pytest.mark.parametrize(("records", "world"), [(2, 5), (3, 2), (2, 1), (7, 8)])
def test_with_fewer_records_than_ranks_each_rank_gets_one(cut: Padded | Packed, records: int, world: int) -> None:
    plan = _plan([10] * records, cut, pool=4, world=world)
    epoch = plan.epoch(0)
    assert epoch.steps == 1
    assert epoch.repeated == max(world - records, 0)
    taken = np.concatenate(_ids(epoch, world))
    assert set(taken.tolist()) == set(range(records))
    assert len(taken) == records + epoch.repeated


def test_pools_of_one_record_are_batches_of_one_record() -> None:
    plan = _plan([5, 9, 100, 3, 8, 30], Padded(max_tokens=100), pool=1, world=2)
    epoch = plan.epoch(0)
    assert (epoch.steps, epoch.repeated) == (3, 0)
    assert sorted(int(ids[0]) for ids in _ids(epoch, 2)) == list(range(6))


def test_in_the_tail_a_rank_repeats_a_record_where_another_needs_more_batches() -> None:
    plan = _plan([100, 100, 100], Padded(max_tokens=100), pool=2, world=2)
    epoch = plan.epoch(0)
    assert (epoch.steps, epoch.repeated) == (2, 1)
    assert sorted(len(ids) for ids in _ids(epoch, 2)) == [1, 1, 1, 1]


def test_pools_join_where_a_rank_has_too_few_records_left() -> None:
    lengths = _lengths(20_000)
    before = _plan(lengths, _BOUND, pool=1000, world=4)
    after = _plan(lengths, _BOUND, pool=1000, world=7)
    # Stopped before the group's last batch, in an epoch in which that is a batch of few long records.
    epochs = [
        epoch for epoch in map(before.epoch, range(30)) if epoch.batch(0, epoch.group(0).batches - 1).width > 2000
    ]
    rest = after.resume(epochs[0].state(epochs[0].group(0).batches - 1))
    joined, next_group = rest.group(0), rest.group(rest.group(0).batches)
    assert (joined.first_pool, joined.end_pool) == (0, 2)
    assert (next_group.first_pool, next_group.end_pool) == (2, 3)
    assert rest.repeated == 0
    share = rest.share(0, joined)
    assert (share.first_slot, share.end_slot, len(share.ids)) == (0, 2000, 2000)


def test_what_was_asked_for_must_be_in_the_epoch() -> None:
    epoch = _plan([5] * 10, Padded(max_tokens=10), pool=4).epoch(0)
    assert epoch.steps == 5
    for step in (-1, 5):
        with pytest.raises(ConfigError, match=rf"step must be in \[0, 5\), got {step}"):
            epoch.group(step)
    for step in (-1, 6):
        with pytest.raises(ConfigError, match=rf"step must be in \[0, 5\], got {step}"):
            epoch.state(step)


def test_a_record_that_is_too_long_is_named_unless_it_may_be_truncated() -> None:
    lengths = [5] * 10
    lengths[7] = 11
    with pytest.raises(
        DatasetError,
        match=r"record 2 of shard s000001: it must have at most max_tokens=10 tokens, got 11; 1 of 10.*Pass truncate=True",
    ):
        _plan(lengths, Padded(max_tokens=10), pool=4)
    assert _plan(lengths, Padded(max_tokens=10, truncate=True), pool=4).epoch(0).steps == 6
    assert _plan(lengths, Packed(row_tokens=10, rows=1), pool=10).epoch(0).steps == 6


def test_plans_and_lengths_that_do_not_fit_are_refused() -> None:
    lengths = np.ones(10, dtype=np.int32)
    cut = Padded(max_tokens=10)
    for spec in (PlanSpec(batch_size=2, drop_last=True), PlanSpec(batch_size=2, pad=True)):
        with pytest.raises(ConfigError, match="drop_last and pad cannot be used"):
            TokenPlan(Plan(catalog_of(5, 5), spec), cut, lengths)
    plan = Plan(catalog_of(5, 5), PlanSpec(batch_size=2))
    with pytest.raises(ConfigError, match="lengths must be int32, one for each of 10 records, got int64"):
        TokenPlan(plan, cut, lengths.astype(np.int64))  # type: ignore[arg-type]  # that is the slip to be found
    with pytest.raises(ConfigError, match="got int32 \\(9,\\)"):
        TokenPlan(plan, cut, lengths[1:])
    with pytest.raises(ConfigError, match="must not be negative, got -1"):
        TokenPlan(plan, cut, lengths - np.int32(2))


def test_a_state_whose_batches_cannot_be_is_refused() -> None:
    plan = _plan([5] * 40, Padded(max_tokens=10), pool=10)
    state = plan.epoch(0).state(3)
    document = state.to_json()
    for world in (1, 2):
        broken = document | {"layers": [[0, world, 10, "padded:10", 9]]}
        with pytest.raises(PlanError, match="a layer must end before its group, which has 5 batches at place 0, got 9"):
            plan.resume(type(state).from_json(broken))
