"""The learned rule: the rule's own decisions, with a model's choice of what may bring more while the user waits. Pure.

The model only chooses what is tried next. The rule begins the trial, judges it, undoes it and bans it as any other, and its
offers are tried where the model knows nothing: out of the range of its training, or if no change is likely enough.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import msgspec
import numpy as np

from emlio.errors import ConfigError
from emlio.learned.forest import Floats
from emlio.learned.model import Model
from emlio.receiver.tuning.offers import Offer, gaining
from emlio.receiver.tuning.rule import decide
from emlio.receiver.tuning.snapshot import Interval, Snapshot
from emlio.receiver.tuning.state import Decision, Limits, RuleState
from emlio.receiver.tuning.tuning import USUAL_MESSAGE_BYTES, Tuning

__all__ = ["COLUMNS", "Learned", "Score", "neighbours", "rows_of"]

_TAU: Final = 0.8
"""A change must be so likely to bring more than the model's epsilon."""

_COST: Final = 0.01
"""The gain that twice the bytes in flight, or twice the lanes, must bring."""

_KIND: Final = "a model's choice"

_CHANGED: Final = {
    "window_bytes": ("larger window", "smaller window"),
    "lanes": ("more lanes", "fewer lanes"),
    "message_bytes": ("larger messages", "smaller messages"),
    "ready_bytes": ("more ready", "less ready"),
}
"""The settings that a model changes, and the kinds of changes, which are those of the rule."""

_LEAST: Final = {"lanes": 1, "message_bytes": 256 << 10, "ready_bytes": 2 << 20}
_MOST: Final = {"lanes": 32, "message_bytes": 8 << 20, "ready_bytes": 128 << 20}

_SEEN: Final = (
    "rate of the largest",
    "rate of the one before",
    "wait",
    "wait, change",
    "network",
    "window",
    "storage",
    "busy",
    "storage busy",
    "round trip",
    "window of the product",
    "lanes of those needed",
    "message of the window",
    "ready of the window",
    "held of the window",
    "credit parts",
)
COLUMNS: Final = (
    *_SEEN,
    *_CHANGED,
    "window of the product, then",
    "lanes of those needed, then",
)
"""The columns of a model: shares, and logarithms of ratios. Only the round trip is a size, in powers of ten of a millisecond."""

Score = Callable[[Floats, Floats, Floats], Floats]
"""Returns the score of each change from its probability, its gain as a share, and the logarithm (base 2) of its cost."""


def ours(chances: Floats, gains: Floats, costs: Floats) -> Floats:
    """Return the expected gain less the cost."""
    return chances * gains - _COST * costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The rule with a model.

    Attributes:
        model: of the columns `COLUMNS`.
        tau: the probability from which on a change is considered.
        score: orders the changes that are.
    """

    model: Model
    tau: float = _TAU
    score: Score = ours

    def __post_init__(self) -> None:
        if self.model.names != COLUMNS:
            raise ConfigError("a model for a loader must have the columns of this release; train it again")

    @property
    def words(self) -> str:
        """The model, as a log names it: that of reading, and its digest."""
        return f"read {self.model.digest}"

    def __call__(self, state: RuleState, now: Snapshot, limits: Limits) -> tuple[RuleState, Decision | None]:
        """See `Rule`."""
        return decide(state, now, limits, self.gains)

    def gains(self, state: RuleState, limits: Limits) -> list[Offer]:
        """Return what may bring more: the changes that the model finds likely, the best first, and then the rule's own."""
        usual = gaining(state, limits)
        offers = list({each.tuning: each for each in (*neighbours(state, limits), *usual)}.values())
        if not offers:
            return usual
        rows = rows_of(state, limits, [each.tuning for each in offers])
        chances = self.model.chances(rows)
        likely = np.flatnonzero(self.model.covers(rows) & (chances > self.tau))
        if not len(likely):
            return usual
        costs = rows[:, COLUMNS.index("window_bytes")] + rows[:, COLUMNS.index("lanes")]
        scores = self.score(chances[likely], np.expm1(self.model.gains(rows[likely])), costs[likely])
        order: list[int] = likely[np.argsort(-scores, kind="stable")].tolist()
        # One kind: a wrong prediction is followed by others.
        return [*(Offer(_KIND, offers[place].name, offers[place].tuning) for place in order), *usual]


def neighbours(state: RuleState, limits: Limits) -> list[Offer]:
    """Return the settings beside those that hold: one changed by one or two steps of a factor of two, or two by one."""
    changed = [name for name in _CHANGED if name != "lanes" or limits.lanes]
    steps = [{name: step} for name in changed for step in (1, -1, 2, -2)]
    steps += [dict.fromkeys(pair, step) for pair in combinations(changed, 2) for step in (1, -1)]
    held = _settings(state, state.tuning)
    found: dict[Tuning, Offer] = {}
    for each in steps:
        values: dict[str, int] = {}
        for name, step in each.items():
            least, most = _bounds(name, limits)
            values[name] = min(max(held[name] << step if step > 0 else held[name] >> -step, least), most)
        if any((values[name] > held[name]) != (step > 0) or values[name] == held[name] for name, step in each.items()):
            continue  # at a bound
        tuning = msgspec.structs.replace(state.tuning, **values)
        kind = " and ".join(_CHANGED[name][step < 0] for name, step in each.items())
        name = ", ".join(_words(name, value) for name, value in values.items())
        found.setdefault(tuning, Offer(kind, name, tuning))
    return list(found.values())


def rows_of(state: RuleState, limits: Limits, candidates: list[Tuning]) -> Floats:
    """Return a row for each of these settings: what was seen of late, and the change."""
    held, seen = _settings(state, state.tuning), _seen(state, limits)
    product, needed = seen[_SEEN.index("window of the product")], seen[_SEEN.index("lanes of those needed")]
    rows: list[list[float]] = []
    for tuning in candidates:
        wanted = _settings(state, tuning)
        steps = [math.log2(wanted[name] / held[name]) for name in _CHANGED]
        rows.append([*seen, *steps, product + steps[0], needed + steps[1]])
    return np.array(rows, np.float64).reshape(len(candidates), len(COLUMNS))


def _seen(state: RuleState, limits: Limits) -> list[float]:
    held = _settings(state, state.tuning)
    now = state.recent[-1] if state.recent else Interval(elapsed_ns=1, rate=0.0, wait=0.0)
    before = state.recent[-2] if len(state.recent) > 1 else now
    largest = max((*state.rates, now.rate))
    waits = (now.network, now.window, now.storage)
    all_waits = sum(map(abs, waits))
    window = held["window_bytes"]
    trip_ms = max(state.trip_ns / 1e6, 0.01)
    full = state.last.held_bytes / window if state.last is not None else 0.0
    return [
        _log2(now.rate, largest),
        _log2(now.rate, before.rate),
        now.wait,
        now.wait - before.wait,
        *(wait / all_waits if all_waits else 0.0 for wait in waits),
        now.busy,
        now.storage_busy,
        math.log10(trip_ms),
        _log2(window, largest * trip_ms / 1e3),
        math.log2(held["lanes"] / max(limits.lanes * trip_ms, 1.0)) if limits.lanes else 0.0,
        math.log2(held["message_bytes"] / window),
        math.log2(held["ready_bytes"] / window),
        full,
        math.log2(state.tuning.credit_parts),
    ]


def _log2(value: float, of: float) -> float:
    """Return the logarithm of a ratio, within 20 steps of two."""
    if value <= 0 or of <= 0:
        return 0.0 if value <= 0 and of <= 0 else 20.0 if of <= 0 else -20.0
    return min(max(math.log2(value) - math.log2(of), -20.0), 20.0)


def _settings(state: RuleState, tuning: Tuning) -> dict[str, int]:
    """Return what holds, or would, also where it is left to the part that it belongs to."""
    lanes = tuning.lanes or state.lanes
    return {
        "window_bytes": tuning.window_bytes,
        "lanes": lanes,
        "message_bytes": tuning.message_bytes or (USUAL_MESSAGE_BYTES if lanes == 1 else 2 << 20),
        "ready_bytes": tuning.ready_bytes or 16 << 20,
    }


def _bounds(name: str, limits: Limits) -> tuple[int, int]:
    if name == "window_bytes":
        return limits.least_window_bytes, limits.most_window_bytes
    return _LEAST[name], _MOST[name]


def _words(name: str, value: int) -> str:
    if name == "lanes":
        return f"{value} lanes"
    what = {
        "window_bytes": "a window of {}",
        "message_bytes": "messages of {}",
        "ready_bytes": "{} read ahead by daemons",
    }
    return what[name].format(f"{value >> 20} MiB" if value >= 1 << 20 else f"{value >> 10} KiB")
