"""The offset of another node's clock over time, with its largest possible error.

Covers: a line of offset and drift through the best of many exchanges, its error, jumps. Does not
cover: one exchange (emlio.clocks.exchange).

Averaging cannot correct a direction that is slower than the other, so every error includes half a
round trip. For the same reason a jump is assumed only if no offset that drifts at `MOST_DRIFT_PPB`
or less fits the intervals of all exchanges.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from emlio.clocks.exchange import MOST_DRIFT_PPB, Exchange
from emlio.errors import ConfigError

__all__ = ["ClockFit", "ClockLine", "fit_clock"]

_WINDOW_NS = 10_000_000_000
"""The best quarter of the exchanges of each window is used, so that no window is ignored."""

_SURE_DRIFT_PPB = 100_000
"""Drift is fitted only if delays can cause an apparent drift of at most this much. Otherwise a fit
would be worse than none.
"""

_ROUNDING_NS = 1

_FAR_WORSE = 1.5
"""A window is ignored if its best round trip is longer than the overall best by this factor. Its
neighbours are more precise.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockLine:
    """The offset during a time in which the other clock did not jump.

    Attributes:
        from_ns: the first exchange used, by our clock.
        to_ns: the last one.
        offset_ns: the other clock minus ours at `from_ns`.
        drift_ppb: growth of the offset in nanoseconds per second.
        error_ns: the largest possible error between the two moments.
        round_trip_ns: the shortest round trip.
        exchanges: how many were used.
    """

    from_ns: int
    to_ns: int
    offset_ns: int
    drift_ppb: float
    error_ns: int
    round_trip_ns: int
    exchanges: int

    def offset_at(self, at_ns: int) -> int:
        """Return the other clock minus ours at a moment of our clock."""
        return self.offset_ns + round(self.drift_ppb * (at_ns - self.from_ns) / 1e9)

    def error_at(self, at_ns: int) -> int:
        """Return the largest possible error at a moment.

        It grows with the distance from the exchanges.
        """
        away_ns = max(self.from_ns - at_ns, at_ns - self.to_ns, 0)
        wander_ppb = MOST_DRIFT_PPB + abs(self.drift_ppb)
        if self.to_ns > self.from_ns:  # the true line is within the error at both ends, too
            wander_ppb = min(wander_ppb, 2e9 * self.error_ns / (self.to_ns - self.from_ns))
        return self.error_ns + round(wander_ppb * away_ns / 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFit:
    """Another node's clock against ours.

    Attributes:
        lines: in the order of time; more than one if the clock jumped, as when the node slept or
            rebooted.
    """

    lines: tuple[ClockLine, ...]

    def __post_init__(self) -> None:
        if not self.lines:
            raise ConfigError("a clock must have at least one line, got none")

    @property
    def jumps(self) -> int:
        """The number of jumps."""
        return len(self.lines) - 1

    def theirs_at(self, ours_ns: int) -> int:
        """Return the other clock's time at a moment of our clock."""
        return ours_ns + self._nearest(ours_ns).offset_at(ours_ns)

    def error_at(self, ours_ns: int) -> int:
        """Return the largest possible error of `theirs_at`.

        Around a jump, whose moment is unknown, the error includes the jump.
        """
        near = self._nearest(ours_ns)
        error_ns = near.error_at(ours_ns)
        for before, after in pairwise(self.lines):
            if before.to_ns < ours_ns < after.from_ns:
                other = after if near is before else before
                apart_ns = abs(other.offset_at(ours_ns) - near.offset_at(ours_ns))
                return max(error_ns, apart_ns + other.error_at(ours_ns))
        return error_ns

    def error_between(self, from_ns: int, to_ns: int) -> int:
        """Return the largest error between two moments of our clock."""
        ends = [end for line in self.lines for end in (line.from_ns, line.to_ns) if from_ns < end < to_ns]
        inside = [(line.to_ns + 1, after.from_ns - 1) for line, after in pairwise(self.lines)]
        gaps = [at for gap in inside for at in gap if from_ns < at < to_ns]
        return max(self.error_at(at) for at in (from_ns, to_ns, *ends, *gaps))

    def _nearest(self, at_ns: int) -> ClockLine:
        return min(self.lines, key=lambda line: max(line.from_ns - at_ns, at_ns - line.to_ns, 0))


def fit_clock(exchanges: Iterable[Exchange]) -> ClockFit:
    """Fit a line, or one for each period between jumps.

    Args:
        exchanges: with one node, in any order. A few in a row now and then are better than single
            ones.

    Raises:
        ConfigError: there are none.
    """
    ordered = sorted(exchanges, key=lambda one: one.at_ns)
    if not ordered:
        raise ConfigError("a clock must have been asked at least once, got no exchange")
    return ClockFit(lines=tuple(map(_line, _between_jumps(ordered))))


def _between_jumps(ordered: Sequence[Exchange]) -> list[list[Exchange]]:
    """Track the interval of possible offsets; the clock jumped where it becomes empty."""
    pieces: list[list[Exchange]] = []
    least_ns = most_ns = last_ns = 0
    for one in ordered:
        wander_ns = (one.at_ns - last_ns) * MOST_DRIFT_PPB // 1_000_000_000 + 1
        low_ns, high_ns = one.offset_ns - one.error_ns, one.offset_ns + one.error_ns
        least_ns, most_ns = max(least_ns - wander_ns, low_ns), min(most_ns + wander_ns, high_ns)
        if not pieces or least_ns > most_ns:
            pieces.append([])
            least_ns, most_ns = low_ns, high_ns
        pieces[-1].append(one)
        last_ns = one.at_ns
    return pieces


def _line(piece: Sequence[Exchange]) -> ClockLine:
    """Fit a straight line through the best exchanges.

    The true offset lies within the error of each exchange, and its distance from a line changes
    evenly. So a bound that holds at the exchanges holds between them.
    """
    best = _best(piece)
    first = best[0]
    slope = _slope(best)
    above = [one.offset_ns - first.offset_ns - slope * (one.at_ns - first.at_ns) for one in best]
    start_ns = round((min(above) + max(above)) / 2) + first.offset_ns
    error_ns = max(abs(one.offset_ns - start_ns - slope * (one.at_ns - first.at_ns)) + one.error_ns for one in best)
    return ClockLine(
        from_ns=first.at_ns,
        to_ns=best[-1].at_ns,
        offset_ns=start_ns,
        drift_ppb=slope * 1e9,
        error_ns=round(error_ns) + 1,
        round_trip_ns=min(one.round_trip_ns for one in best),
        exchanges=len(best),
    )


def _best(piece: Sequence[Exchange]) -> list[Exchange]:
    """Return the quarter of each window with the shortest round trips.

    Windows that are far worse than the best one are left out.
    """
    windows: dict[int, list[Exchange]] = {}
    for one in piece:
        windows.setdefault((one.at_ns - piece[0].at_ns) // _WINDOW_NS, []).append(one)
    shortest = min(one.round_trip_ns for one in piece)
    chosen: list[Exchange] = []
    for window in windows.values():
        ranked = sorted(window, key=lambda one: one.round_trip_ns)
        if ranked[0].round_trip_ns <= _FAR_WORSE * shortest:
            chosen.extend(ranked[: -(-len(ranked) // 4)])
    return sorted(chosen, key=lambda one: one.at_ns)


def _slope(best: Sequence[Exchange]) -> float:
    """Return the slope of the offset by least squares; 0 if delays could cause it."""
    trips = [one.round_trip_ns for one in best]
    span_ns = best[-1].at_ns - best[0].at_ns
    if (max(trips) - min(trips)) / 2 + _ROUNDING_NS > span_ns * _SURE_DRIFT_PPB / 1e9:
        return 0.0
    times = [one.at_ns - best[0].at_ns for one in best]
    offsets = [one.offset_ns - best[0].offset_ns for one in best]
    mean_time, mean_offset = sum(times) / len(times), sum(offsets) / len(offsets)
    squares = sum((time - mean_time) ** 2 for time in times)
    products = sum((time - mean_time) * (off - mean_offset) for time, off in zip(times, offsets, strict=True))
    return products / squares
