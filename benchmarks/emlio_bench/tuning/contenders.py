"""The contenders that set a loader: rules of the same form as its own, each with its memory."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from emlio.receiver.tuning.choice import Joules, Rule
from emlio.receiver.tuning.learned import neighbours
from emlio.receiver.tuning.log import Line
from emlio.receiver.tuning.snapshot import Interval, Snapshot
from emlio.receiver.tuning.state import Decision, Limits, RuleState
from emlio.receiver.tuning.tuning import Tuning
from emlio_bench.harness.rounds import rotated
from emlio_bench.tuning.learned import LEARNED

__all__ = ["AUTO", "CONTENDERS", "GOVERNOR", "STILL", "Draw", "Still", "Walk", "rule_of", "turns_of"]

MIB: Final = 1 << 20
AUTO: Final = "auto"
GOVERNOR: Final = "governor"
STILL: Final = "at first"
_PAPER: Final = Tuning(window_bytes=64 * MIB, lanes=1, message_bytes=4 * MIB)
"""One connection with a high-water mark of 16 messages."""

_ANYWHERE: Final = 0.3
_LEAST_WINDOW_BYTES: Final = 16 * MIB


@dataclass(slots=True)
class Still:
    """Sets once, and changes nothing."""

    tuning: Tuning | None = None

    def __call__(self, state: RuleState, _: Snapshot, __: Limits) -> tuple[RuleState, Decision | None]:
        """See `Rule`."""
        if self.tuning is None or self.tuning == state.tuning:
            return state, None
        return msgspec.structs.replace(state, tuning=self.tuning), Decision(tuning=self.tuning, reason="set")


@dataclass(slots=True)
class Walk:
    """Walks through settings: each is left alone for a while, and then measured.

    Attributes:
        left: those that come.
        settle_ns, hold_ns: how long each is left alone, and measured.
        walked: those that were, with the times between which they were measured.
    """

    left: list[Tuning]
    settle_ns: int
    hold_ns: int
    walked: list[tuple[Tuning, int, int]] = field(default_factory=list[tuple[Tuning, int, int]])
    ends_ns: int = 0

    @property
    def is_over(self) -> bool:
        """Return whether all were measured."""
        return not self.left and not self.ends_ns

    def __call__(self, state: RuleState, now: Snapshot, _: Limits) -> tuple[RuleState, Decision | None]:
        """See `Rule`."""
        if self.ends_ns and now.at_ns < self.ends_ns:
            return state, None
        if self.ends_ns:
            self.walked.append((state.tuning, self.ends_ns - self.hold_ns, now.at_ns))
            self.ends_ns = 0
        if not self.left:
            return state, None
        tuning = self.left.pop(0)
        self.ends_ns = now.at_ns + self.settle_ns + self.hold_ns
        return msgspec.structs.replace(state, tuning=tuning), Decision(tuning=tuning, reason="next")


@dataclass(slots=True)
class Draw:
    """Draws settings at random, of which three in ten lie anywhere, and the others beside those that hold.

    Attributes:
        draws: the source of what is random.
        hold_ns: how long each is held.
        lines: what was seen, and what was drawn.
    """

    draws: Random
    hold_ns: int
    lines: list[Line] = field(default_factory=list[Line])
    due_ns: int = 0

    def __call__(self, state: RuleState, now: Snapshot, limits: Limits) -> tuple[RuleState, Decision | None]:
        """See `Rule`."""
        if now.at_ns < self.due_ns:
            self.lines.append(Line(snapshot=now))
            return state, None
        self.due_ns = now.at_ns + self.hold_ns
        state = msgspec.structs.replace(state, last=now)
        wide = msgspec.structs.replace(limits, least_window_bytes=_LEAST_WINDOW_BYTES)
        beside = [] if self.draws.random() < _ANYWHERE else neighbours(state, wide)
        tuning = self.draws.choice(beside).tuning if beside else self._anywhere(limits)
        self.lines.append(Line(limits=limits, snapshot=now, tuning=tuning))
        return msgspec.structs.replace(state, tuning=tuning), Decision(tuning=tuning, reason="drawn")

    def _anywhere(self, limits: Limits) -> Tuning:
        window = min(_LEAST_WINDOW_BYTES << self.draws.randrange(5), limits.most_window_bytes)
        return Tuning(
            window_bytes=window,
            credit_parts=self.draws.choice((4, 8, 16, 16)),
            lanes=self.draws.choice((1, 2, 4, 8, 12, 16, 24, 32)),
            message_bytes=MIB // 4 << self.draws.randrange(6),
            ready_bytes=2 * MIB << self.draws.randrange(7),
        )


@dataclass(slots=True)
class _Seen:
    """The intervals that a contender sees."""

    last: Snapshot | None = None
    trips: deque[int] = field(default_factory=lambda: deque(maxlen=20))
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=10))

    def next(self, now: Snapshot) -> Interval | None:
        before, self.last = self.last, now
        if now.round_trip_ns is not None:
            self.trips.append(now.round_trip_ns)
        if before is None:
            return None
        interval = Interval.between(before, now)
        self.rates.append(interval.rate)
        return interval


def _set(state: RuleState, reason: str, **changes: int) -> tuple[RuleState, Decision | None]:
    tuning = msgspec.structs.replace(state.tuning, **changes)
    if tuning == state.tuning:
        return state, None
    return msgspec.structs.replace(state, tuning=tuning), Decision(tuning=tuning, reason=reason)


@dataclass(slots=True)
class _Product:
    """Two lines: the window is twice the product of rate and round trip, at least eight messages of 4 MiB."""

    seen: _Seen = field(default_factory=_Seen)

    def __call__(self, state: RuleState, now: Snapshot, limits: Limits) -> tuple[RuleState, Decision | None]:
        if self.seen.next(now) is None:
            return state, None
        product = 2 * max(self.seen.rates) * min(self.seen.trips, default=0) / 1e9
        window = min(max(round(product), 32 * MIB), limits.most_window_bytes)
        if abs(window - state.tuning.window_bytes) < state.tuning.window_bytes // 8:
            return state, None
        return _set(state, "rate times round trip", window_bytes=window)


@dataclass(slots=True)
class _Aimd:
    """A lane and 4 MiB more each second while the user waits, half of both when the round trip doubles."""

    seen: _Seen = field(default_factory=_Seen)
    turn: int = 0

    def __call__(self, state: RuleState, now: Snapshot, limits: Limits) -> tuple[RuleState, Decision | None]:
        interval = self.seen.next(now)
        self.turn += 1
        if interval is None or self.turn % 2:
            return state, None
        lanes, window = state.tuning.lanes or max(now.lanes, 1), state.tuning.window_bytes
        least = min(self.seen.trips, default=0)
        if now.round_trip_ns is not None and now.round_trip_ns > 2 * least + 1_000_000:
            return _set(state, "halved", lanes=max(lanes // 2, 1), window_bytes=max(window // 2, 16 * MIB))
        if interval.wait < 0.01:
            return state, None
        more = min(window + 4 * MIB, limits.most_window_bytes)
        return _set(state, "one more", lanes=min(lanes + 1, 32), window_bytes=more)


@dataclass(slots=True)
class _Climb:
    """Hill climbing: one setting up or down after the other, kept if more comes."""

    seen: _Seen = field(default_factory=_Seen)
    before: tuple[Tuning, float] | None = None
    turn: int = 0
    move: int = 0

    def __call__(self, state: RuleState, now: Snapshot, limits: Limits) -> tuple[RuleState, Decision | None]:
        if self.seen.next(now) is None:
            return state, None
        self.turn += 1
        if self.turn % 3:
            return state, None
        rate = sum(list(self.seen.rates)[-2:]) / 2
        if self.before is not None:
            tuning, known = self.before
            self.before = None
            if rate < known:
                self.move += 1
                after = msgspec.structs.replace(state, tuning=tuning)
                return after, Decision(tuning=tuning, reason="less came")
        self.before = state.tuning, rate
        lanes, message = state.tuning.lanes or max(now.lanes, 1), state.tuning.message_bytes or 2 * MIB
        window = state.tuning.window_bytes
        moves: tuple[dict[str, int], ...] = (
            {"lanes": min(2 * lanes, 32)},
            {"window_bytes": min(2 * window, limits.most_window_bytes)},
            {"message_bytes": min(2 * message, 8 * MIB)},
            {"lanes": max(lanes // 2, 1)},
            {"window_bytes": max(window // 2, 16 * MIB)},
            {"message_bytes": max(message // 2, MIB // 4)},
        )
        for _ in moves:
            change = moves[self.move % len(moves)]
            found, decision = _set(state, "another step", **change)
            if decision is not None:
                return found, decision
            self.move += 1
        return state, None


CONTENDERS: Final[Mapping[str, Callable[[Path | str], Rule | Joules] | None]] = {
    AUTO: None,
    GOVERNOR: lambda _: Joules(0.98),
    STILL: lambda _: Still(),
    "the paper's": lambda _: Still(_PAPER),
    "rate x round trip": lambda _: _Product(),
    "AIMD": lambda _: _Aimd(),
    "hill climbing": lambda _: _Climb(),
    **LEARNED,
}
"""Contenders and what makes their rule, of the place of a model; None for the loader's own."""

_COMPARED: Final = frozenset(CONTENDERS) - {AUTO, GOVERNOR, STILL, "learned"}
"""Those that are there for comparison alone: what sets them apart is large, and one run shows it."""


def rule_of(name: str, model: str = "") -> Rule | Joules | None:
    """Return what sets a loader for a contender, with the model in a file if it is learned; None for the usual rule."""
    make = CONTENDERS[name]
    return None if make is None else make(Path(model) if model else "read")


def turns_of(those: Sequence[str], number: int) -> list[str]:
    """Return who of some contenders and settings runs in a round, in its order."""
    return [name for name in rotated(those, number) if number == 0 or name not in _COMPARED]
