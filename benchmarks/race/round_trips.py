"""The law of a loader that waits for each of its requests: a number of round trips that nothing overlaps, times their length.

Covers: the law as a value, that number out of runs at several round trips, the paper's. Pure. Does not cover: drawing it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from emlio.benchmarks.race.outcome import Contest
from emlio.benchmarks.race.quantity import Quantity
from emlio.benchmarks.race.standing import Standing
from emlio.benchmarks.race.subjects.quoted import PAPERS_TABLES, PublishedEpochs

__all__ = ["Law", "fitted_laws", "published_laws"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """An epoch is a constant and so many round trips.

    Attributes:
        subject: whose.
        setting: of the subject's; empty for a published one.
        round_trips: that nothing overlaps.
        base_s: what an epoch would take without any distance.
        source: where the number is from, in words.
    """

    subject: str
    setting: str
    round_trips: float
    base_s: float
    source: str

    def seconds(self, rtt_ns: float) -> float:
        """Of an epoch."""
        return self.base_s + self.round_trips * rtt_ns / 1e9


def fitted_laws(rows: Sequence[Standing], contests: Sequence[Contest]) -> tuple[Law, ...]:
    """Of those that read over a mount, as far as they came to an end at two round trips or more.

    Args:
        rows: of the race.
        contests: that differ in their round trip alone.
    """
    laws: list[Law] = []
    for who in dict.fromkeys(
        (row.entrant.subject, row.entrant.setting) for row in rows if row.entrant.family == "files"
    ):
        points = [
            (row.contest.rtt_ns / 1e9, first.median)
            for row in rows
            if (row.entrant.subject, row.entrant.setting) == who and row.contest in contests
            if (first := row.of(Quantity.FIRST_EPOCH)) is not None and not first.bound
        ]
        if len(points) > 1:
            laws.append(_fit(*who, sorted(points)))
    return tuple(laws)


def _fit(subject: str, setting: str, points: Sequence[tuple[float, float]]) -> Law:
    """Through the shortest round trip, where the constant is seen best; the slope is that of least squares from there."""
    (nearest_s, least_s), *others = points
    steps = [(rtt_s - nearest_s, seconds - least_s) for rtt_s, seconds in others]
    slope = sum(step * rise for step, rise in steps) / sum(step * step for step, _ in steps)
    return Law(
        subject=subject,
        setting=setting,
        round_trips=max(slope, 0.0),
        base_s=max(least_s - max(slope, 0.0) * nearest_s, 0.0),
        source=f"fitted to its first epochs at {len(points)} round trips",
    )


def published_laws(tables: Sequence[PublishedEpochs] = PAPERS_TABLES) -> tuple[Law, ...]:
    """What the paper's tables say of its baseline, with the paper's data and machines."""
    laws: list[Law] = []
    for table in tables:
        nearest_ns, least_s = min(table.seconds)
        laws.append(
            Law(
                subject=table.system,
                setting="",
                round_trips=table.round_trips,
                base_s=max(least_s - table.round_trips * nearest_ns / 1e9, 0.0),
                source=f"the paper's table for {table.workload}: its own data and machines",
            )
        )
    return tuple(laws)
