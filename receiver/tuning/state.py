"""The limits, the memory and the decisions of the rule that sets a loader.

Covers: the values. Does not cover: the rule (emlio.receiver.tuning.rule).
"""

import msgspec

from emlio.receiver.tuning.snapshot import Interval, Snapshot
from emlio.receiver.tuning.tuning import BOUNDS, Tuning

__all__ = ["SAVING", "Decision", "Limits", "Move", "RuleState"]

SAVING = 0.97
"""A trial that is to save work must cost so much less."""

_WAITS = 0.01
"""Above this share of waiting, or what the user allows, something is tried that may bring more."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one loader's settings.

    Attributes:
        least_window_bytes: the least window; the same as the most if the user set one.
        most_window_bytes: the largest window.
        lanes: lanes that fill the path for each round trip of 1 ms; 0 where they are set.
        least_parts: the fewest parts of the window in which credit is given.
        waits: the share of the time for which the user may wait.
        governs: whether everything that may cost less is tried, not only bursts.
        alone: whether the job has one rank. Of several that share a daemon's link one gains what others lose, so none
            tries to: all follow the path in the same way.
    """

    least_window_bytes: int
    most_window_bytes: int
    lanes: float = 0.0
    least_parts: int = 4
    waits: float = 0.005
    governs: bool = False
    alone: bool = True

    @property
    def too_long(self) -> float:
        """The share of waiting from which on more must come."""
        return max(_WAITS, self.waits)


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that is tried.

    Attributes:
        kind: of the change, such as "more lanes", which is not tried again for a while where it did not pay.
        name: of the setting, and its new value.
        before: the settings before it.
        tried: the settings with it.
        rate: of the path before it.
        cost: before it, for a move that is to save processor time.
        saves: whether that is its purpose.
        most: the cost at which it stays, as a share of that before.
        seen: the intervals since it was made.
    """

    kind: str
    name: str
    before: Tuning
    tried: Tuning
    rate: float
    cost: float | None
    saves: bool
    most: float = SAVING
    seen: tuple[Interval, ...] = ()


class RuleState(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of the rule.

    Attributes:
        tuning: the settings that hold.
        last: the snapshot at the end of the last interval.
        recent: the latest intervals in which nothing changed, the last one at the end.
        rates: the latest rates.
        trips: the latest round trips and their times.
        low_ns: since when a smaller window would do.
        lanes_trip_ns: the round trip for which the lanes were chosen.
        move: the setting that is being tried.
        bans: until when a move is not tried again, and for how long it was banned.
        calm: intervals without a wait, in a row.
        floor_bytes: of the window: a larger one than the path needs brought more.
        rested: the settings before any that are to save work, to which a wait leads back.
    """

    tuning: Tuning
    last: Snapshot | None = None
    recent: tuple[Interval, ...] = ()
    rates: tuple[float, ...] = ()
    trips: tuple[tuple[int, int], ...] = ()
    low_ns: int | None = None
    lanes_trip_ns: int | None = None
    move: Move | None = None
    bans: dict[str, tuple[int, int]] = {}
    calm: int = 0
    floor_bytes: int = 0
    rested: Tuning | None = None

    @property
    def lanes(self) -> int:
        """The lanes to each daemon now."""
        up = self.last.lanes // max(self.last.senders, 1) if self.last is not None else 0
        return min(max(self.tuning.lanes or up, 1), BOUNDS["lanes"][1])

    @property
    def trip_ns(self) -> int:
        """The least round trip of late; 0 if none is known."""
        return min((trip for _, trip in self.trips), default=0)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the settings, and its reason in words."""

    tuning: Tuning
    reason: str
