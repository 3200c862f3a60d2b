"""Every order of events that a small job can meet: nothing is lost, nothing comes twice, and it always goes on.

Covers: the real machine of one rank, and two daemons, with all faults of docs/reference/protocol.md, in every order. The
invariants I1 to I8 hold in every state, and from every state the end is reached when nothing else goes wrong (L1).
"""

from functools import cache

import pytest
from search import explore
from world import World

_ONE = World(shards=((1, "AB"),), batch=1, bound=1)
_TWO = World(shards=((1, "A"), (1, "B")), batch=1, bound=1)
_LENDS = World(shards=((1, "AB"), (1, "A")), batch=2, bound=1, lends=True)
_WIDE = World(shards=((2, "AB"),), lanes=2, faults=0)
_LONG = World(shards=((1, "A"), (3, "AB")), seed=1, bound=3, largest=2, lane_bytes=1 << 10, faults=0)

_explored = cache(explore)
"""Most tests look at a world that another one has explored."""


def _slow(world: World, at_least: int, name: str) -> object:
    return pytest.param(world, at_least, id=name, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])


@pytest.mark.parametrize(
    ("world", "at_least"),
    [
        pytest.param(_LONG, 3_000, id="messages of two records, run ahead, no fault"),
        pytest.param(_ONE, 15_000, id="one record that both hold, one fault"),
        _slow(_TWO, 40_000, "a record of each, one fault"),
        _slow(_WIDE, 30_000, "two lanes, no fault"),
        _slow(_LENDS, 20_000, "one may be slow, one fault or loan"),
        _slow(World(shards=((1, "AB"),), batch=1, bound=1, faults=2), 200_000, "one record, two faults"),
        _slow(World(shards=((2, "AB"), (2, "AB")), seed=2), 200_000, "both hold all, one fault"),
    ],
)
def test_whatever_happens_in_whatever_order_all_records_come_once_and_in_order(world: World, at_least: int) -> None:
    explored = _explored(world)
    assert explored.counterexample is None, f"\n{explored.counterexample}"
    # A search that found little looked at little.
    assert explored.states >= at_least
    assert explored.ends > 0


def test_in_the_searched_states_everything_happens_that_the_document_lists() -> None:
    happened = _explored(_ONE).happened
    for what in (
        "A crashes",
        "A crashes, what was under way is lost",
        "A starts again",
        "the control connection of A is cut",
        "the rank notices that A is silent",
        "no lane of A can be had for long",
        "of A falls silent",
        "no heartbeat comes of the lane",
        "of A ends, 1 of its messages arrive",
        "the rank notices the end of the lane",
        "of A comes up",
        "of A cannot be connected",
        "A hears the credit of the lane",
        "the rank notices that nothing more comes of A",
        "A hears the order of stream 2",
        "the rank hears that stream 2 is open of A",
    ):
        assert any(what in step for step in happened), what
