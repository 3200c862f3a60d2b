"""The search can find something: with any one rule left out it shows a way to what must not be.

Covers: one mutant for each rule, the invariant that it breaks, and a step of the shortest way there.
"""

import pytest
from protocol_rules import Rules, World
from protocol_search import explore

_COPIES = World(shards=((2, "AB"), (2, "AB")), seed=2, faults=1)
_PARTS = World(shards=((1, "A"), (2, "AB"), (1, "B")), seed=3, faults=1)
_TIGHT = World(shards=((3, "A"), (1, "AB")), lanes=2, faults=1)


class _AcceptsOlderStreams(Rules):
    def _lane_accepts(self, due: int, came: int, after_loss: bool) -> bool:
        return super()._lane_accepts(due, due, after_loss)


class _OverlooksGaps(Rules):
    def _lane_accepts(self, due: int, came: int, after_loss: bool) -> bool:
        return super()._lane_accepts(due, came, after_loss=False)


class _OpensOnePlaceTooFar(Rules):
    def _first_missing(self, here: int, owners: tuple[int, ...], daemon: int) -> int:
        return super()._first_missing(here, owners, daemon) + 1


class _KeepsDuplicates(Rules):
    def _place(
        self, here: int, owners: tuple[int, ...], daemon: int, reopened: bool, places: tuple[int, ...]
    ) -> tuple[int, str]:
        return super()._place(here, owners, daemon, reopened=False, places=places)


class _ReadsTheLanesOfAStreamThatIsReplaced(Rules):
    closes_lanes_when_ordering = False


class _ConnectsToTheLanesOfAnyAnswer(Rules):
    def _takes_answer(self, ordered: int, answered: int, stopped: bool) -> bool:
        return True


class _OrdersNothingAtTheOthers(Rules):
    all_that_change_are_ordered = False


class _GivesShardsToWhoeverIsLeft(Rules):
    def _owners(self, gone: tuple[int, ...], lent: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
        left = [daemon for daemon in (0, 1) if daemon not in gone]
        return tuple(owner if owner in left or not left else left[0] for owner in super()._owners((), lent))


class _OverlooksStalls(Rules):
    stalls_are_noticed = False


class _KeepsTheWindowShutForTheNextBatch(Rules):
    def _admits(self, here: int, first: int) -> bool:
        return here.bit_count() - self.handed_out(here) < self.world.window


class _HasNoWindow(Rules):
    def _admits(self, here: int, first: int) -> bool:
        return True


@pytest.mark.parametrize(
    ("mutant", "world", "broken", "step"),
    [
        (_AcceptsOlderStreams, _COPIES, "I3", "of an older stream turns up"),
        (_OverlooksGaps, _COPIES, "I5", "is cut, 0 of its messages arrive"),
        (_OpensOnePlaceTooFar, _COPIES, "I5", "taken for silent"),
        (_KeepsDuplicates, _COPIES, "I8", "hears the order of stream 2"),
        (_ReadsTheLanesOfAStreamThatIsReplaced, _COPIES, "I3", "taken for silent"),
        (_ConnectsToTheLanesOfAnyAnswer, _COPIES, "I3", "that stream 1 is open"),
        (_OrdersNothingAtTheOthers, _COPIES, "I5", "taken for silent"),
        (_GivesShardsToWhoeverIsLeft, _PARTS, "I6", "taken for silent"),
        (_OverlooksStalls, _TIGHT, "L1", "is cut, 0 of its messages arrive"),
        (_KeepsTheWindowShutForTheNextBatch, _COPIES, "I8", "nothing more comes"),
        (_HasNoWindow, World(shards=((1, "A"), (4, "B")), seed=7, batch=1, window=1, faults=0), "I7", "reads"),
    ],
)
def test_without_the_rule_the_search_shows_what_goes_wrong(
    mutant: type[Rules], world: World, broken: str, step: str
) -> None:
    assert explore(Rules(world)).counterexample is None
    example = explore(mutant(world)).counterexample
    assert example is not None
    assert example.what.startswith(f"{broken}: "), f"\n{example}"
    assert any(step in taken for taken in example.trace), f"\n{example}"
