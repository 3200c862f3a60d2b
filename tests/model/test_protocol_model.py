"""Every order of events that a small job can meet: nothing is lost, nothing comes twice, and it always goes on.

Covers: one rank and two daemons, with all that docs/protocol.md lists as faults, in each order there is. The invariants I1 to I8
hold in every state, and from every state the end is reached when nothing else goes wrong (L1).
"""

import pytest
from protocol_rules import Rules, World
from protocol_search import explore

_COPIES = World(shards=((2, "AB"), (2, "AB")), seed=2)
_PARTS = World(shards=((1, "A"), (2, "AB"), (1, "B")), seed=3, largest=2)
_LANES = World(shards=((2, "AB"), (2, "AB")), seed=2, lanes=2, largest=2, faults=1, lends=True)
_TIGHT = World(shards=((3, "A"), (1, "AB")), lanes=2, faults=1, lends=True)
_LOANS = World(shards=((2, "AB"), (2, "AB")), seed=2, lends=True)
_MORE = World(shards=((1, "AB"), (2, "AB")), seed=1, lanes=2)


@pytest.mark.parametrize(
    ("world", "at_least"),
    [
        pytest.param(_COPIES, 40_000, id="both hold all, two faults"),
        pytest.param(_PARTS, 40_000, id="each holds a part, two faults, messages of two records"),
        pytest.param(_LANES, 30_000, id="two lanes, one fault or loan, messages of two records"),
        pytest.param(_TIGHT, 10_000, id="two lanes, of which one can hold all that may be under way"),
        pytest.param(_LOANS, 100_000, id="both hold all, two faults or loans", marks=pytest.mark.slow),
        pytest.param(_MORE, 90_000, id="two lanes, two faults", marks=pytest.mark.slow),
    ],
)
def test_whatever_happens_in_whatever_order_all_records_come_once_and_in_order(world: World, at_least: int) -> None:
    explored = explore(Rules(world))
    assert explored.counterexample is None, f"\n{explored.counterexample}"
    # A search that found little looked at little.
    assert explored.states >= at_least
    assert explored.ends > 0


def test_in_the_searched_states_everything_happens_that_the_document_lists() -> None:
    explored = explore(Rules(_TIGHT))
    for what in (
        "A crashes",
        "B is slow, and others are asked",
        "what was lent is given back",
        "B hears 'stop'",
        "B crashes, what was under way is lost",
        "A starts again",
        "the control connection of B is cut",
        "A is taken for silent, though it lives",
        "the rank notices that B is silent",
        "the rank calls A again",
        "place 1 of an older stream turns up",
        "of A is cut, 1 of its messages arrive",
        "of A connects again",
        "A sends a message of the next epoch",
        "the first held back of A",
        "the rank notices that nothing more comes of A",
        "A hears the order of stream 2",
        "the rank hears that stream 2 is open of A",
    ):
        assert any(what in step for step in explored.happened), what
