"""A total that only rises, from a counter that wraps, resets, jumps and fails."""

from dataclasses import dataclass
from enum import StrEnum

from emlio.errors import ConfigError

__all__ = ["Counter", "Event", "Step"]

_LATE_NS = 250_000_000
"""The possible age of a counter's value. Those of GPUs are refreshed every 20 to 100 ms,
independently of reads.
"""


class Event(StrEnum):
    """An irregularity of a reading."""

    NONE = "none"
    WRAPPED = "wrapped"
    """The counter passed its range. Nothing is lost."""
    RESET = "reset"
    """The counter was reset. Energy used since the previous reading is not in the total."""
    GLITCH = "glitch"
    """The counter jumped further than the device can draw. The jump is not in the total."""
    GAP = "gap"
    """No value came, or none for so long that the counter may have wrapped more than once.

    The total may be too small from here on.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The total after a reading.

    Attributes:
        total_uj: microjoules since the first reading.
        event: an irregularity of the reading.
    """

    total_uj: int
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    raw_uj: int
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Advance:
    uj: int
    event: Event


class Counter:
    """The unwrapped total of one device. The total never falls.

    A value that cannot follow from the previous one adds nothing. Both are kept, and the next value
    shows which one was wrong: the previous one (the counter really jumped, or was reset) or this
    one (a bad reading, after which the counter continues as before).
    """

    def __init__(self, *, range_uj: int | None, most_watts: float | None) -> None:
        """Start at 0.

        Args:
            range_uj: the modulus; None for a counter that does not wrap.
            most_watts: more than the device can draw. With None, a fall counts as a wrap if the
                rise that it implies is at most half the range, and any upward jump is accepted.
        """
        if range_uj is not None and range_uj < 2:
            raise ConfigError(f"a counter's range must be at least 2 µJ, got {range_uj}")
        if most_watts is not None and not most_watts > 0:
            raise ConfigError(f"the maximum power of a device must be above 0 W, got {most_watts}")
        self._range_uj = range_uj
        self._most_watts = most_watts
        self._total_uj = 0
        self._last: _Point | None = None
        self._before: _Point | None = None
        self._at_ns: int | None = None

    def step(self, raw_uj: int | None, at_ns: int) -> Step:
        """Add a reading.

        Args:
            raw_uj: the counter's value; None where it could not be read.
            at_ns: the time of the reading; never before the previous one.
        """
        if self._at_ns is not None and at_ns < self._at_ns:
            raise ConfigError(f"a reading must not be older than the one before, got {at_ns} ns after {self._at_ns} ns")
        if raw_uj is not None and raw_uj < 0:
            raise ConfigError(f"a counter must be at least 0, got {raw_uj} µJ")
        self._at_ns = at_ns
        if raw_uj is None:
            return Step(total_uj=self._total_uj, event=Event.GAP)
        now = _Point(raw_uj=raw_uj, at_ns=at_ns)
        if self._last is None:
            self._last = now
            return Step(total_uj=0, event=Event.NONE)
        found = self._most_cautious(now)
        if found is None:
            event = Event.RESET if now.raw_uj < self._last.raw_uj else Event.GLITCH
            # Of two doubtful values in a row the first is proved wrong, unless it is the last
            # accepted one.
            self._before = self._before or self._last
            self._last = now
            return Step(total_uj=self._total_uj, event=event)
        self._last, self._before = now, None
        self._total_uj += found.uj
        return Step(total_uj=self._total_uj, event=found.event)

    def _most_cautious(self, now: _Point) -> _Advance | None:
        """Return the least energy that is consistent with any of the kept points."""
        kept = [point for point in (self._last, self._before) if point is not None]
        ways = [way for way in (self._advance(point, now) for point in kept) if way is not None]
        return min(ways, key=lambda way: way.uj, default=None)

    def _advance(self, last: _Point, now: _Point) -> _Advance | None:
        """Return the energy used between two values.

        None if the second cannot follow from the first.
        """
        used_uj, event = now.raw_uj - last.raw_uj, Event.NONE
        if used_uj < 0:
            if self._range_uj is None:
                return None
            used_uj, event = used_uj % self._range_uj, Event.WRAPPED
        if self._most_watts is None:
            if event is Event.WRAPPED and self._range_uj is not None and used_uj > self._range_uj // 2:
                return None
            return _Advance(uj=used_uj, event=event)
        most_uj = self._most_watts * (now.at_ns - last.at_ns + _LATE_NS) / 1000
        if used_uj > most_uj:
            return None
        if self._range_uj is not None and used_uj + self._range_uj <= most_uj:
            return _Advance(uj=used_uj, event=Event.GAP)
        return _Advance(uj=used_uj, event=event)
