"""All states that can be reached, each looked at once; and whether the end can be reached from all of them.

Covers: the search, the bound on what is held, progress, counterexamples as lists of steps. Does not cover: the steps (steps).
"""

import gc
from array import array
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from steps import Game, State
from world import DAEMONS, HELD_BYTES, World

__all__ = ["Counterexample", "Explored", "explore"]


_MOST_STATES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexample:
    """The shortest way to what must not be."""

    what: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        """The steps, and what they lead to."""
        return "\n".join([*(f"{number}. {step}" for number, step in enumerate(self.trace, 1)), f"=> {self.what}"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """What a search found.

    Attributes:
        states: how many there are.
        moves: how many steps between them.
        ends: in how many of them everything was handed out.
        happened: the steps, in words.
        counterexample: what is wrong, if anything.
    """

    states: int
    moves: int
    ends: int
    happened: frozenset[str]
    counterexample: Counterexample | None


def explore(world: World) -> Explored:
    """Look at every state; stop at the first that must not be."""
    gc.collect()
    gc.disable()  # many tuples, none in a circle
    try:
        return _Search(world).run()
    finally:
        gc.enable()


class _Search:
    def __init__(self, world: World) -> None:
        self._world = world
        self._game = Game(world)
        self._known: dict[State, int] = {}
        self._reached_by: list[tuple[int, str]] = []
        self._waiting: deque[tuple[int, State]] = deque()
        # Steps without a fault, for progress: from and to.
        self._froms, self._tos, self._ends = array("i"), array("i"), array("i")
        self._moves = 0
        self._happened: set[str] = set()

    def run(self) -> Explored:
        self._note(self._game.begin(), -1, "")
        while self._waiting:
            if len(self._known) > _MOST_STATES:
                raise AssertionError(f"a world must have at most {_MOST_STATES} states, or nobody sees its end")
            number, state = self._waiting.popleft()
            wrong = state.broken or self._wrong(state)
            if wrong:
                return self._found(wrong, number)
            if state.handed == self._world.places:
                self._ends.append(number)
                continue
            for step, fault, after in self._game.steps(state):
                self._moves += 1
                self._happened.add(step)
                index = self._note(after, number, step)
                if not fault:
                    self._froms.append(number)
                    self._tos.append(index)
        stuck = self._without_way()
        if stuck.size:
            text = "L1: from here not everything can be handed out any more, though nothing else goes wrong"
            return self._found(text, int(stuck[0]))
        return self._result(None)

    def _note(self, state: State, before: int, step: str) -> int:
        index = self._known.get(state)
        if index is None:
            index = self._known[state] = len(self._known)
            self._reached_by.append((before, step))
            self._waiting.append((index, state))
        return index

    def _found(self, what: str, number: int) -> Explored:
        trace: list[str] = []
        while number > 0:
            number, step = self._reached_by[number]
            trace.append(step)
        return self._result(Counterexample(what=what, trace=tuple(reversed(trace))))

    def _result(self, example: Counterexample | None) -> Explored:
        return Explored(
            states=len(self._known),
            moves=self._moves,
            ends=len(self._ends),
            happened=frozenset(self._happened),
            counterexample=example,
        )

    def _wrong(self, state: State) -> str:
        world = self._world
        held = self._game.held_bytes(state)
        most = (world.bound + world.batch + len(DAEMONS) * (world.largest - 1)) * HELD_BYTES
        if held > most:
            return f"I7: {held} bytes are held, at most {most} may be"
        for daemon, side in enumerate(state.sides):
            for lane in side.lanes:
                if len(lane.queue) > 1 and world.lane_bytes == 1:
                    return f"I7: {len(lane.queue)} messages are under way on one lane of {DAEMONS[daemon]}"
        return ""

    def _without_way(self) -> npt.NDArray[np.int64]:
        """The states from which no end can be reached without a fault."""
        reaches = np.zeros(len(self._known), np.bool_)
        reaches[np.array(self._ends, np.int64)] = True
        source, target = np.array(self._froms, np.int64), np.array(self._tos, np.int64)
        while True:
            more = source[reaches[target] & ~reaches[source]]
            if not more.size:
                return np.flatnonzero(~reaches)
            reaches[more] = True
