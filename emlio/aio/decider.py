"""The choice of the next setting of a handle: two ways that ask the same model. Pure.

`dial` is the algorithm of the paper DIAL as printed: of all settings that the model expects to bring 15 % more with a
probability above 0.8 it takes the one with the largest score, at once, and never goes back. The weights of its scores are not
printed; they are 1 here.

`decide` tries what the model expects to bring most. A trial that does not bring 3 % more is undone and not repeated for a
while, and no setting is tried for a shorter while, each time for twice as long. Where the model was not trained nothing changes.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.aio.interval import SETTINGS, Interval, Setting, rows_of
from emlio.learned.model import Model

__all__ = ["EPSILON", "TAU", "Decide", "Memory", "Trial", "decide", "dial", "dial_scores"]

_Floats = npt.NDArray[np.float64]

EPSILON: Final = 0.15
TAU: Final = 0.8
"""The gain whose probability a model tells, and the probability from which on it counts: DIAL's."""

_ALPHA: Final = 1.0
_BETA: Final = 1.0
_RATES: Final = 20
_BEFORE: Final = 2
_AFTER: Final = 2
"""Intervals before a trial, and in it after the first one, whose medians are compared."""

_KEPT: Final = 1.03
"""The least gain of a trial that is kept: without one, many trials could lose a little each."""

_COST: Final = 0.01
"""Twice as many bytes at the disk must bring so much more."""

_PAUSE_NS: Final = 5_000_000_000
_BANNED_NS: Final = 30_000_000_000
_MOST_NS: Final = 960_000_000_000
"""The first pause after a trial that failed, the first ban of its setting, and the longest of both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A setting that is tried.

    Attributes:
        before: the setting before it.
        rate: the rate with that.
        seen: the rates since.
    """

    before: Setting
    rate: float
    seen: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of a decider, for reads or for writes.

    Attributes:
        setting: the setting that holds from now on.
        last: the latest interval.
        rates: the latest rates.
        steady: how many intervals the setting has held without a trial.
        trial: under way.
        bans: until when a setting is not tried again, and for how long it was banned.
        pause: the same for all settings, since a trial failed.
        reason: of what was decided last, in words.
    """

    setting: Setting
    last: Interval | None = None
    rates: tuple[float, ...] = ()
    steady: int = 0
    trial: Trial | None = None
    bans: Mapping[Setting, tuple[int, int]] = field(default_factory=dict[Setting, tuple[int, int]])
    pause: tuple[int, int] = (0, 0)
    reason: str = ""

    def seen(self, now: Interval) -> "Memory":
        """Return the memory with an interval more."""
        return replace(self, last=now, rates=(*self.rates, now.rate)[-_RATES:], steady=self.steady + 1)

    def undone(self, before: Setting, at_ns: int, reason: str) -> "Memory":
        """Return the memory after a trial that failed, with the setting before it."""
        bans = {**self.bans, self.setting: _longer(self.bans.get(self.setting, (0, 0)), _BANNED_NS, at_ns)}
        pause = _longer(self.pause, _PAUSE_NS, at_ns)
        return replace(self, setting=before, trial=None, steady=0, bans=bans, pause=pause, reason=reason)


Decide = Callable[[Memory, Interval], Memory]
"""Returns the next memory, whose setting holds from then on, from a memory and an interval."""


def dial_scores(chances: _Floats, settings: _Floats, *, write: bool) -> _Floats:
    """Return DIAL's WriteScore or ReadScore of settings, shape (n,).

    Args:
        chances: (n,) the probability that each brings more.
        settings: (n, 2) the size of blocks and the depth. They are scaled to [0, 1] over these settings.
        write: which of the two scores.
    """
    low = settings.min(axis=0)
    width = settings.max(axis=0) - low
    scaled: _Floats = (settings - low) / np.where(width > 0, width, 1)
    scores: _Floats = (
        chances * (1 + _BETA * scaled.sum(axis=1)) if write else chances * (1 + _ALPHA * scaled[:, 0]) + scaled[:, 1]
    )
    return scores


def dial(model: Model, memory: Memory, now: Interval) -> Memory:
    """Decide as DIAL's Algorithm 1 does, with a history of two intervals."""
    after = memory.seen(now)
    if memory.last is None:
        return after
    chances = model.chances(rows_of(now, memory.last, after.rates))
    chosen = np.flatnonzero(chances > TAU)
    if not len(chosen):
        return after
    pairs = np.array([(SETTINGS[place].block_bytes, SETTINGS[place].depth) for place in chosen], np.float64)
    best = chosen[np.argmax(dial_scores(chances[chosen], pairs, write=now.write))]
    return replace(after, setting=SETTINGS[best])


def decide(model: Model, memory: Memory, now: Interval) -> Memory:
    """Decide by trials of what the model expects to bring most, less what it costs."""
    after = memory.seen(now)
    if after.trial is not None:
        return _judged(after, after.trial, now)
    if after.steady < _BEFORE:
        return replace(after, reason="the rate with this setting is not known yet")
    if now.at_ns < after.pause[0]:
        return replace(after, reason="the last trial failed a short while ago")
    rows = rows_of(now, memory.last, after.rates)
    chances = model.chances(rows)
    covered = model.covers(rows)
    likely = covered & (chances > TAU) & np.array([setting != now.setting for setting in SETTINGS])
    possible = likely & np.array([after.bans.get(setting, (0, 0))[0] <= now.at_ns for setting in SETTINGS])
    if not possible.any():
        reason = "all settings that may bring more failed" if likely.any() else "no setting is likely to bring more"
        return replace(after, reason=reason if covered.any() else "the model was not trained for such requests")
    windows = np.array([setting.window_bytes / now.setting.window_bytes for setting in SETTINGS])
    value = chances * np.expm1(model.gains(rows)) - _COST * np.log2(windows)
    best = SETTINGS[int(np.argmax(np.where(possible, value, -np.inf)))]
    trial = Trial(before=now.setting, rate=statistics.median(after.rates[-_BEFORE:]))
    return replace(after, setting=best, trial=trial, reason="a trial of what may bring more")


def _judged(memory: Memory, trial: Trial, now: Interval) -> Memory:
    """End a trial, if enough was seen of it."""
    trial = replace(trial, seen=(*trial.seen, now.rate))
    if len(trial.seen) <= _AFTER:
        return replace(memory, trial=trial, reason="the trial goes on")
    gain = statistics.median(trial.seen[1:]) / max(trial.rate, 1.0)
    if gain >= _KEPT:
        return replace(memory, trial=None, steady=0, pause=(0, 0), reason=f"the trial brings {gain:.2f} times as much")
    return memory.undone(trial.before, now.at_ns, f"the trial brought {gain:.2f} times as much only")


def _longer(before: tuple[int, int], first_ns: int, at_ns: int) -> tuple[int, int]:
    """Return the end and the length of what follows a ban or a pause."""
    length_ns = min(2 * before[1] or first_ns, _MOST_NS)
    return at_ns + length_ns, length_ns
