"""The contenders with a model: the learned rule, parts of it replaced, and DIAL's algorithm as it was published.

DIAL (M. H. Rashid et al., "DIAL: Decentralized I/O AutoTuning via Learned Client-side Local Metrics for Parallel File System",
Algorithm 1) sets a size of requests and their number in flight; here these are of messages, and the window is their product.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from emlio.aio.decider import dial_scores
from emlio.learned.forest import Floats
from emlio.learned.model import Model
from emlio.receiver.tuning.choice import Rule
from emlio.receiver.tuning.learned import COLUMNS, Learned, neighbours, rows_of
from emlio.receiver.tuning.offers import Offer
from emlio.receiver.tuning.rule import decide
from emlio.receiver.tuning.snapshot import Snapshot
from emlio.receiver.tuning.state import Decision, Limits, RuleState
from emlio_bench.tuning.rows import watched

__all__ = ["DIAL", "LEARNED"]

_MIB: Final = 1 << 20
_LEAST_WINDOW_BYTES: Final = 16 * _MIB
_MESSAGES: Final = tuple(_MIB // 4 << step for step in range(6))
_IN_FLIGHT: Final = tuple(8 << step for step in range(6))
_ENOUGH: Final = 2.0
"""Logarithm of the window over the product of rate and round trip: with four times as much a larger window brings nothing."""


@dataclass(slots=True)
class DIAL:
    """Algorithm 1 for reading: each interval the best of all settings that are likely to bring more, at once and for good."""

    model: Model
    tau: float = 0.8

    def __call__(self, state: RuleState, now: Snapshot, limits: Limits) -> tuple[RuleState, Decision | None]:
        """See `Rule`."""
        state = watched(state, now)
        if len(state.recent) < 2:  # a history of two
            return state, None
        space = [
            msgspec.structs.replace(state.tuning, message_bytes=message, window_bytes=message * count)
            for message in _MESSAGES
            for count in _IN_FLIGHT
            if _LEAST_WINDOW_BYTES <= message * count <= limits.most_window_bytes
        ]
        chances = self.model.chances(rows_of(state, limits, space))
        likely = np.flatnonzero(chances > self.tau)
        if not len(likely):
            return state, None
        pairs = [
            (space[place].message_bytes, space[place].window_bytes / space[place].message_bytes) for place in likely
        ]
        scores = dial_scores(chances[likely], np.array(pairs, np.float64), write=False)
        tuning = space[int(likely[np.argmax(scores)])]
        if tuning == state.tuning:
            return state, None
        return msgspec.structs.replace(state, tuning=tuning), Decision(tuning=tuning, reason="the best score")


@dataclass(slots=True)
class _Any:
    """A random order."""

    draws: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def __call__(self, chances: Floats, _: Floats, __: Floats) -> Floats:
        return self.draws.random(len(chances))


def _stump(state: RuleState, limits: Limits) -> list[Offer]:
    """Return larger windows, up to a threshold."""
    offers = neighbours(state, limits)
    rows = rows_of(state, limits, [each.tuning for each in offers])
    product = rows[:, COLUMNS.index("window of the product")] if offers else np.zeros(0)
    return [each for each, now in zip(offers, product, strict=True) if each.kind == "larger window" and now < _ENOUGH]


LEARNED: Final[Mapping[str, Callable[[Path | str], Rule]]] = {
    "learned": lambda place: Learned(model=Model.load(place)),
    "DIAL": lambda place: DIAL(Model.load(place)),
    "random above tau": lambda place: Learned(model=Model.load(place), score=_Any()),
    "stump": lambda _: lambda state, now, limits: decide(state, now, limits, _stump),
}
"""Contenders, and what makes their rule of the place of a model. The stump has none: it asks whether trees are needed."""
