"""Where the user is in the epochs of a plan."""

import json

import pytest

from emlio.errors import PlanError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.plan import Plan, PlanSpec
from emlio.receiver.iteration.position import Position


def _plan(records: int = 20, batch_size: int = 3, world_size: int = 2, seed: int = 7, digest: str = "x") -> Plan:
    catalog = Catalog(shards=(ShardEntry(name="a", records=records, size_bytes=1000, digest=digest),))
    return Plan(catalog, PlanSpec(seed=seed, batch_size=batch_size, world_size=world_size))


def _step(position: Position, count: int) -> None:
    for _ in range(count):
        position.steps_done += 1


def test_a_new_one_is_at_the_beginning_of_epoch_0() -> None:
    position = Position(_plan())
    assert (position.epoch, position.steps_done, position.steps, position.at_end) == (0, 0, 4, False)
    assert position.flow == (0, 0)


def test_it_ends_after_as_many_batches_as_the_epoch_has() -> None:
    position = Position(_plan())
    _step(position, 3)
    assert not position.at_end
    position.steps_done += 1
    assert position.at_end
    position.move_to(1)
    assert (position.epoch, position.steps_done, position.at_end) == (1, 0, False)


def test_the_state_counts_the_samples_of_all_ranks_and_never_more_than_there_are() -> None:
    position = Position(_plan())
    consumed = [position.state()["consumed"]]
    for _ in range(4):
        position.steps_done += 1
        consumed.append(position.state()["consumed"])
    assert consumed == [0, 6, 12, 18, 20]


def test_the_flow_does_not_move_while_batches_are_handed_out() -> None:
    position = Position(_plan())
    _step(position, 2)
    assert position.flow == (0, 0)
    position.load(position.state())
    assert (position.flow, position.steps, position.steps_done) == ((0, 12), 2, 0)


@pytest.mark.parametrize(("batch_size", "world_size", "steps"), [(3, 2, 2), (1, 1, 8), (5, 3, 1), (2, 4, 1)])
def test_a_state_is_gone_on_from_with_any_world_and_batch_size(batch_size: int, world_size: int, steps: int) -> None:
    position = Position(_plan())
    position.move_to(5)
    _step(position, 2)
    state = json.loads(json.dumps(position.state()))
    other = Position(_plan(batch_size=batch_size, world_size=world_size))
    other.load(state)
    assert (other.epoch, other.steps, other.steps_done) == (5, steps, 0)
    assert other.state() == state


def test_a_rest_of_a_rest_is_counted_from_the_beginning_of_the_epoch() -> None:
    position = Position(_plan())
    position.steps_done += 1
    position.load(position.state())
    position.steps_done += 1
    assert position.state()["consumed"] == 12
    position.load(position.state())
    assert position.flow == (0, 12)


def test_what_is_handed_out_twice_is_said() -> None:
    assert Position(_plan(records=20, batch_size=3, world_size=2)).repeated == 0
    assert Position(_plan(records=19, batch_size=3, world_size=2)).repeated == 1


@pytest.mark.parametrize("other", [_plan(seed=8), _plan(digest="y"), _plan(records=21)])
def test_a_state_of_something_else_is_refused_and_nothing_moves(other: Plan) -> None:
    position = Position(_plan())
    _step(position, 2)
    before = position.state()
    stranger = Position(other)
    stranger.steps_done += 1
    with pytest.raises(PlanError):
        position.load(stranger.state())
    assert (position.state(), position.steps_done, position.flow) == (before, 2, (0, 0))


def test_an_impossible_place_is_refused_and_nothing_moves() -> None:
    position = Position(_plan())
    position.steps_done += 1
    before = position.state()
    with pytest.raises(PlanError, match="at most the 20 records of an epoch, got 21"):
        position.load(before | {"consumed": 21})
    assert (position.state(), position.steps_done) == (before, 1)
