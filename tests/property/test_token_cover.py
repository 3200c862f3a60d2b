"""Token batches over whole epochs: cover, bounds, equal steps, going on anywhere with any world."""

import json
from collections import Counter
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.planner.tokens.epoch import TokenBatch, TokenEpoch, TokenShare
from emlio.planner.tokens.packed import Packed
from emlio.planner.tokens.padded import Padded
from emlio.planner.tokens.plan import TokenPlan
from emlio.planner.tokens.state import TokenState

_LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=90)
_PACKED = st.builds(Packed, row_tokens=st.integers(1, 60), rows=st.integers(1, 4))
_TRUNCATED = st.builds(Padded, max_tokens=st.integers(1, 200), truncate=st.just(True))
_CUTS = st.one_of(st.builds(Padded, max_tokens=st.integers(40, 200)), _TRUNCATED, _PACKED)
_WORLDS = st.integers(1, 6)
_POOLS = st.integers(1, 30)
_SHUFFLES = st.sampled_from(["global", "block:5:3", "none"]).map(Shuffle.parse)

_Token = tuple[int, int]  # a record, and a token's number in it; -1 for a record without tokens
_Step = list[list[_Token]]  # of each rank


def _plan(
    lengths: list[int], cut: Padded | Packed, world: int, pool: int, shuffle: Shuffle | None = None, seed: int = 5
) -> TokenPlan:
    catalog = Catalog(shards=(ShardEntry(name="a", records=len(lengths), size_bytes=1, digest=""),))
    spec = PlanSpec(seed=seed, shuffle=shuffle or Shuffle(), batch_size=pool, world_size=world)
    return TokenPlan(Plan(catalog, spec), cut, np.array(lengths, dtype=np.int32))


def _tokens(share: TokenShare, batch: TokenBatch, lengths: list[int], cut: Padded | Packed) -> list[_Token]:
    """What is in a batch, which must be as the rule says."""
    assert len(batch.records)
    if isinstance(cut, Padded):
        assert batch.height * batch.width <= cut.max_tokens
    else:
        assert (batch.height, batch.width) == (cut.rows, cut.row_tokens)
    taken = np.zeros((batch.height, batch.width), dtype=np.int64)
    tokens: list[_Token] = []
    pieces = (batch.records, batch.begins, batch.ends, batch.rows, batch.columns)
    for record, begin, end, row, column in zip(*(array.tolist() for array in pieces), strict=True):
        identity = int(share.ids[record])
        assert 0 <= begin <= end <= lengths[identity]
        assert column + end - begin <= batch.width
        taken[row, column : column + end - begin] += 1
        tokens += [(identity, token) for token in range(begin, end)] or [(identity, -1)]
    assert taken.max(initial=0) <= 1  # no two pieces at one place
    assert taken.sum() == batch.tokens
    return tokens


def _handed_out(plan: TokenPlan, lengths: list[int], epoch: TokenEpoch, steps: int) -> list[_Step]:
    """The tokens of the first steps, by step and rank."""
    found: list[_Step] = []
    shares: list[TokenShare] = []
    for step in range(steps):
        group = epoch.group(step)
        if not shares or shares[0].group != group:
            shares = [epoch.share(rank, group) for rank in range(plan.plan.spec.world_size)]
        number = epoch.step_in_group(step)
        assert {len(share.batches) for share in shares} == {group.batches}
        found.append([_tokens(share, share.batches[number], lengths, plan.cut) for share in shares])
    return found


def _flat(steps: list[_Step]) -> Counter[_Token]:
    return Counter(token for step in steps for rank in step for token in rank)


def _wanted(lengths: list[int], cuts: list[Padded | Packed]) -> set[_Token]:
    """All tokens but those that one of the rules may leave out."""
    most = min((cut.max_tokens for cut in cuts if isinstance(cut, Padded)), default=10**9)
    return {
        (record, token)
        for record, length in enumerate(lengths)
        for token in (range(min(length, most)) if length else [-1])
    }


@settings(max_examples=30, deadline=None)
@given(_LENGTHS, _CUTS, _WORLDS, _POOLS, _SHUFFLES, st.integers(0, 2**63 - 1), st.integers(0, 100))
def test_every_token_is_handed_out_once_in_equal_steps_under_the_bound(
    lengths: list[int], cut: Padded | Packed, world: int, pool: int, shuffle: Shuffle, seed: int, number: int
) -> None:
    plan = _plan(lengths, cut, world, pool, shuffle, seed)
    epoch = plan.epoch(number)
    taken = _flat(_handed_out(plan, lengths, epoch, epoch.steps))
    assert set(taken) == _wanted(lengths, [cut])
    assert (max(taken.values()) > 1) == (epoch.repeated > 0)
    assert epoch.state(epoch.steps).consumed == len(lengths)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), _WORLDS, _POOLS, st.integers(40, 100))
def test_as_many_records_are_repeated_as_said(lengths: list[int], world: int, pool: int, bound: int) -> None:
    plan = _plan(lengths, Padded(max_tokens=bound), world, pool)
    epoch = plan.epoch(0)
    taken = _flat(_handed_out(plan, lengths, epoch, epoch.steps))
    assert sum(count for (_, token), count in taken.items() if token == 0) == len(lengths) + epoch.repeated


@settings(max_examples=25, deadline=None)
@given(_LENGTHS, _CUTS, _WORLDS, _POOLS, st.data())
def test_an_epoch_goes_on_at_any_step_as_if_it_had_not_stopped(
    lengths: list[int], cut: Padded | Packed, world: int, pool: int, data: st.DataObject
) -> None:
    plan = _plan(lengths, cut, world, pool)
    epoch = plan.epoch(2)
    whole = _handed_out(plan, lengths, epoch, epoch.steps)
    stop = data.draw(st.integers(0, epoch.steps))
    rest = plan.resume(TokenState.from_json(json.loads(json.dumps(epoch.state(stop).to_json()))))
    assert rest.steps == epoch.steps - stop
    assert _handed_out(plan, lengths, rest, rest.steps) == whole[stop:]
    further = data.draw(st.integers(0, rest.steps))
    assert rest.state(further) == epoch.state(stop + further)


@settings(max_examples=35, deadline=None)
@given(
    _LENGTHS,
    st.lists(st.tuples(st.one_of(_TRUNCATED, _PACKED), _WORLDS, _POOLS, st.integers(0, 12)), min_size=2, max_size=5),
    st.data(),
)
def test_an_epoch_goes_on_with_other_ranks_pools_and_rules_several_times_in_a_row(
    lengths: list[int], parts: list[tuple[Padded | Packed, int, int, int]], data: st.DataObject
) -> None:
    taken: list[_Step] = []
    state: TokenState | None = None
    repeated = 0
    for turn, (cut, world, pool, wanted) in enumerate(parts):
        plan = _plan(lengths, cut, world, pool)
        epoch = plan.epoch(1) if state is None else plan.resume(state)
        steps = epoch.steps if turn == len(parts) - 1 else min(wanted, epoch.steps)
        part = _handed_out(plan, lengths, epoch, epoch.steps)
        taken += part[:steps]
        repeated += epoch.repeated
        state = epoch.state(steps)
        further = data.draw(st.integers(0, epoch.steps - steps))
        rest = plan.resume(state)  # nothing may depend on what was known before the stop
        assert rest.state(further) == epoch.state(steps + further)
        assert _handed_out(plan, lengths, rest, further) == part[steps : steps + further]
    counted = _flat(taken)
    assert _wanted(lengths, [cut for cut, *_ in parts]) <= set(counted)
    assert {record for record, _ in counted} == set(range(len(lengths)))
    if not repeated:
        assert set(counted.values()) == {1}


_WHOLE = st.builds(Padded, max_tokens=st.integers(120, 200))
_IN_PIECES = st.builds(Packed, row_tokens=st.integers(12, 60), rows=st.integers(1, 4))


@settings(max_examples=35, deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.lists(
        st.tuples(st.one_of(_WHOLE, _IN_PIECES), st.integers(1, 4), st.integers(25, 40), st.integers(0, 7)),
        min_size=2,
        max_size=5,
    ),
    st.integers(0, 100),
)
def test_after_changes_of_the_layout_nothing_is_repeated_before_the_last_group(
    random: Random, parts: list[tuple[Padded | Packed, int, int, int]], number: int
) -> None:
    lengths = [random.randint(1, 40) for _ in range(450)]
    taken: list[_Step] = []
    state: TokenState | None = None
    for cut, world, pool, wanted in parts:
        plan = _plan(lengths, cut, world, pool)
        epoch = plan.epoch(number) if state is None else plan.resume(state)
        # Not into the last group, which is where records may be repeated.
        before_last = epoch.steps - 1 - epoch.step_in_group(epoch.steps - 1)
        steps = min(wanted, max(before_last, 0))
        taken += _handed_out(plan, lengths, epoch, steps)
        state = epoch.state(steps)
    rest = plan.resume(state)
    before_last = rest.steps - 1 - rest.step_in_group(rest.steps - 1)
    part = _handed_out(plan, lengths, rest, rest.steps)
    assert set(_flat(taken + part)) == _wanted(lengths, [])
    assert max(_flat(taken + part[: max(before_last, 0)]).values(), default=1) == 1
