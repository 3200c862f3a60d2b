"""The law of a loader that waits for each request: sequential round trips times their length.

Covers: the law as a value, fitting the number of round trips to runs, the paper's numbers. Pure.
Does not cover: drawing it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from emlio_bench.race.outcome import Contest
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.standing import Standing
from emlio_bench.race.subjects.quoted import PAPERS_TABLES, PublishedEpochs

__all__ = ["Law", "fitted_laws", "published_laws"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """An epoch that takes a constant time plus a number of sequential round trips.

    Attributes:
        subject: name of the system.
        setting: setting of the system; empty for a published law.
        round_trips: number of sequential round trips.
        base_s: duration of an epoch without a round trip.
        source: source of the number, in words.
    """

    subject: str
    setting: str
    round_trips: float
    base_s: float
    source: str

    def seconds(self, rtt_ns: float) -> float:
        """Return the duration of an epoch."""
        return self.base_s + self.round_trips * rtt_ns / 1e9


def fitted_laws(rows: Sequence[Standing], contests: Sequence[Contest]) -> tuple[Law, ...]:
    """Fit the laws of systems that read over a mount, if they finished at two round trips or more.

    Args:
        rows: standings of the race.
        contests: contests that differ only in their round trip.
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
    """Fit a line through the point of the shortest round trip, by least squares of the others.

    The constant shows best at the shortest round trip.
    """
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
    """Return the laws of the paper's baseline, measured with the paper's data and machines."""
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
