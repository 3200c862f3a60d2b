"""All states that can be reached, each looked at once; and whether the end can be reached from all of them.

Covers: the search, the invariants of a state, progress, counterexamples as lists of steps. Does not cover: the steps
(protocol_moves).
"""

import gc
from array import array
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from protocol_moves import begin, owners_in, steps
from protocol_rules import DAEMONS, Rules
from protocol_state import Feed, Phase, Side, State

__all__ = ["Counterexample", "Explored", "explore"]


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


def explore(rules: Rules) -> Explored:
    """Look at every state; stop at the first that must not be."""
    gc.collect()
    gc.disable()  # millions of tuples, none in a circle: looking through them takes half the time
    try:
        return _explore(rules)
    finally:
        gc.enable()


def _explore(rules: Rules) -> Explored:
    first = begin(rules)
    known: dict[State, int] = {first: 0}
    reached_by: list[tuple[int, str]] = [(-1, "")]
    waiting: deque[State] = deque([first])
    # Steps without a fault, for progress: from and to.
    froms, tos, ends = array("i"), array("i"), array("i")
    moves = 0
    happened: set[str] = set()
    whole = (1 << rules.world.places) - 1

    def found(what: str, number: int) -> Explored:
        trace: list[str] = []
        while number > 0:
            number, step = reached_by[number]
            trace.append(step)
        return result(Counterexample(what=what, trace=tuple(reversed(trace))))

    def result(example: Counterexample | None) -> Explored:
        seen = frozenset(happened)
        return Explored(states=len(known), moves=moves, ends=len(ends), happened=seen, counterexample=example)

    while waiting:
        state = waiting.popleft()
        number = known[state]
        wrong = state.broken or _wrong(rules, state)
        if wrong:
            return found(wrong, number)
        if state.here == whole:
            ends.append(number)
            continue
        for step, fault, after in steps(rules, state):
            moves += 1
            happened.add(step)
            index = known.get(after)
            if index is None:
                index = known[after] = len(known)
                reached_by.append((number, step))
                waiting.append(after)
            if not fault:
                froms.append(number)
                tos.append(index)
    stuck = _without_way(len(known), froms, tos, ends)
    if stuck.size:
        return found(
            "L1: from here not everything can be handed out any more, though nothing else goes wrong", int(stuck[0])
        )
    return result(None)


def _without_way(states: int, froms: "array[int]", tos: "array[int]", ends: "array[int]") -> npt.NDArray[np.int64]:
    """The states from which no end can be reached without a fault."""
    reaches = np.zeros(states, np.bool_)
    reaches[np.array(ends, np.int64)] = True
    source, target = np.array(froms, np.int64), np.array(tos, np.int64)
    while True:
        more = source[reaches[target] & ~reaches[source]]
        if not more.size:
            return np.flatnonzero(~reaches)
        reaches[more] = True


# ---- invariants of a state ------------------------------------------------------------------------------------------


def _wrong(rules: Rules, state: State) -> str:
    owners = owners_in(rules, state)
    for shard, owner in enumerate(owners):
        if not rules.holds(owner, shard):
            return f"I6: shard {shard} is owed by {DAEMONS[owner]}, which does not hold it"
    world = rules.world
    ahead = state.here.bit_count() - rules.handed_out(state.here)
    if ahead > world.window + world.batch + world.largest - 1:
        return f"I7: {ahead} places are held"
    for daemon, side in enumerate(state.sides):
        queued = [len(lane.queue) for lane in side.lanes]
        if max(queued, default=0) > world.queue or sum(queued) > world.budget + world.lanes:
            return f"I7: {queued} messages are under way from {DAEMONS[daemon]}"
        for place in rules.missing(state.here, owners, daemon):
            if _nobody_notices(side, place):
                return f"I5: {DAEMONS[daemon]} owes place {place}, will not send it, and nothing tells the rank"
    return ""


def _nobody_notices(side: Side, place: int) -> bool:
    """Whether a place that the daemon owes is neither to come nor known to be missing."""
    if not side.known or side.phase < Phase.IDLE:
        return False  # its stream will be opened again
    newest = next((said for said in reversed(side.up) if isinstance(said, Feed)), side.feed)
    if newest is None or newest.stream != side.ordered:
        return True
    if place in newest.left:
        return False
    # A gap that a later message of the lane will show; a message that is under way.
    return not any(
        lane.lost or any(message.after_loss or place in message.places for message in lane.queue) for lane in side.lanes
    )
