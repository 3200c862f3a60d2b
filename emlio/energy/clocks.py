"""How far another node's clock is from ours, and how sure that is.

Covers: a line of offset and drift through the best of many exchanges, its bound, jumps. Does not cover: one exchange
(emlio.energy.exchange).

No averaging mends a way that is slower than the other, so half a round trip stays in every bound. For the same reason a jump is
only claimed when no offset that drifts at `MOST_DRIFT_PPB` or less can pass through the intervals of all exchanges.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from emlio.energy.exchange import MOST_DRIFT_PPB, Exchange, Offset
from emlio.errors import ConfigError

__all__ = ["ClockFit", "ClockLine", "fit_clock"]

_WINDOW_NS = 10_000_000_000
"""Of each window the best quarter of the exchanges is used, so that none goes unseen."""

_SURE_DRIFT_PPB = 100_000
"""A line of drift is drawn where what delays may feign is below this: else it would be worse than none."""

_ROUNDING_NS = 1

_FAR_WORSE = 1.5
"""A window whose best round trip is so many times the best of all says nothing that its neighbours do not say better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockLine:
    """The offset over a time in which the other's clock did not jump.

    Attributes:
        from_ns: the first exchange used, by our clock.
        to_ns: the last one.
        offset_ns: the other's clock less ours at `from_ns`.
        drift_ppb: by how many nanoseconds a second the offset grows.
        error_ns: between the two moments the true offset is not further away.
        round_trip_ns: the shortest seen.
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
        """The other's clock less ours at a moment of ours."""
        return self.offset_ns + round(self.drift_ppb * (at_ns - self.from_ns) / 1e9)

    def error_at(self, at_ns: int) -> int:
        """The true offset is not further away. It grows with the distance from the exchanges."""
        away_ns = max(self.from_ns - at_ns, at_ns - self.to_ns, 0)
        wander_ppb = MOST_DRIFT_PPB + abs(self.drift_ppb)
        if self.to_ns > self.from_ns:  # the true line, too, is within the error at both ends
            wander_ppb = min(wander_ppb, 2e9 * self.error_ns / (self.to_ns - self.from_ns))
        return self.error_ns + round(wander_ppb * away_ns / 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFit:
    """Another node's clock against ours.

    Attributes:
        lines: in the order of time; more than one where it jumped, as when the node slept or started anew.
    """

    lines: tuple[ClockLine, ...]

    def __post_init__(self) -> None:
        if not self.lines:
            raise ConfigError("a clock must have at least one line, got none")

    @property
    def jumps(self) -> int:
        """How often it jumped."""
        return len(self.lines) - 1

    def theirs_at(self, ours_ns: int) -> int:
        """What the other's clock shows at a moment of ours."""
        return ours_ns + self._nearest(ours_ns).offset_at(ours_ns)

    def error_at(self, ours_ns: int) -> int:
        """How far `theirs_at` may be off. Around a jump, whose moment is unknown, the jump is part of it."""
        near = self._nearest(ours_ns)
        error_ns = near.error_at(ours_ns)
        for before, after in pairwise(self.lines):
            if before.to_ns < ours_ns < after.from_ns:
                other = after if near is before else before
                apart_ns = abs(other.offset_at(ours_ns) - near.offset_at(ours_ns))
                return max(error_ns, apart_ns + other.error_at(ours_ns))
        return error_ns

    def error_between(self, from_ns: int, to_ns: int) -> int:
        """The largest error from one moment of ours to another."""
        ends = [end for line in self.lines for end in (line.from_ns, line.to_ns) if from_ns < end < to_ns]
        inside = [(line.to_ns + 1, after.from_ns - 1) for line, after in pairwise(self.lines)]
        gaps = [at for gap in inside for at in gap if from_ns < at < to_ns]
        return max(self.error_at(at) for at in (from_ns, to_ns, *ends, *gaps))

    def _nearest(self, at_ns: int) -> ClockLine:
        return min(self.lines, key=lambda line: max(line.from_ns - at_ns, at_ns - line.to_ns, 0))


def fit_clock(exchanges: Iterable[Exchange | Offset]) -> ClockFit:
    """Draw the line, or one for each stretch between jumps.

    Args:
        exchanges: with one node, in any order; a few in a row now and then are better than one.

    Raises:
        ConfigError: there are none.
    """
    ordered = sorted(exchanges, key=lambda one: one.at_ns)
    if not ordered:
        raise ConfigError("a clock must have been asked at least once, got no exchange")
    return ClockFit(lines=tuple(map(_line, _between_jumps(ordered))))


def _between_jumps(ordered: Sequence[Exchange | Offset]) -> list[list[Exchange | Offset]]:
    """Follow the offsets that are possible; where none is left the clock jumped."""
    pieces: list[list[Exchange | Offset]] = []
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


def _line(piece: Sequence[Exchange | Offset]) -> ClockLine:
    """The straight line through the best exchanges.

    The true offset lies within each one's bound, and its distance from a line changes evenly: so what bounds it at the
    exchanges bounds it between them.
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


def _best(piece: Sequence[Exchange | Offset]) -> list[Exchange | Offset]:
    """The quarter with the shortest round trips of each window, less windows that are far worse than the best."""
    windows: dict[int, list[Exchange | Offset]] = {}
    for one in piece:
        windows.setdefault((one.at_ns - piece[0].at_ns) // _WINDOW_NS, []).append(one)
    shortest = min(one.round_trip_ns for one in piece)
    chosen: list[Exchange | Offset] = []
    for window in windows.values():
        ranked = sorted(window, key=lambda one: one.round_trip_ns)
        if ranked[0].round_trip_ns <= _FAR_WORSE * shortest:
            chosen.extend(ranked[: -(-len(ranked) // 4)])
    return sorted(chosen, key=lambda one: one.at_ns)


def _slope(best: Sequence[Exchange | Offset]) -> float:
    """Nanoseconds of offset a nanosecond, by least squares; 0 where delays could feign it."""
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
