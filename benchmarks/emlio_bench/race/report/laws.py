"""Epochs as a constant and N round trips that nothing overlaps: fitted, and from the paper's tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from emlio_bench.harness.contest import Contest
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.report.standing import Standing

__all__ = ["PAPERS_TABLES", "Law", "fitted_laws", "published_laws"]

_MS: Final = 1_000_000
PAPERS_TABLES: Final[dict[str, dict[int, float]]] = {
    "ResNet-50": {100_000: 165.4, 10 * _MS: 552.5, 30 * _MS: 1699.3},
    "VGG-19": {100_000: 142.6, 10 * _MS: 660.9, 30 * _MS: 2096.8},
    "ResNet-50, half of the data local": {100_000: 230.9, 10 * _MS: 1422.5, 30 * _MS: 4154.7},
}
"""Seconds of an epoch of DALI over NFSv4, by training and round trip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """An epoch as `base_s` and `round_trips` of the link, of one system at one setting."""

    subject: str
    setting: str
    round_trips: float
    base_s: float
    source: str

    def seconds(self, rtt_ns: float) -> float:
        """Return the seconds of an epoch."""
        return self.base_s + self.round_trips * rtt_ns / 1e9


def fitted_laws(rows: Sequence[Standing], contests: Sequence[Contest]) -> tuple[Law, ...]:
    """Return the laws of systems that read files, fitted to their first epochs at several round trips."""
    laws: list[Law] = []
    for who in dict.fromkeys(row.who for row in rows if row.entrant.family == "files"):
        points = sorted(
            (row.contest.rtt_ns / 1e9, first.median)
            for row in rows
            if row.who == who and row.contest in contests
            if (first := row.of(Quantity.FIRST_EPOCH)) is not None and not first.bound
        )
        if len(points) > 1:
            laws.append(_fit(*who, points, f"fitted to its first epochs at {len(points)} round trips"))
    return tuple(laws)


def published_laws() -> tuple[Law, ...]:
    """Return the laws of the paper's tables, from the nearest and the farthest of their round trips."""
    return tuple(
        _fit(
            "DALI over NFSv4",
            "",
            [(rtt_ns / 1e9, epochs[rtt_ns]) for rtt_ns in (min(epochs), max(epochs))],
            f"the paper's table for {training}: its own data and machines",
        )
        for training, epochs in PAPERS_TABLES.items()
    )


def _fit(subject: str, setting: str, points: Sequence[tuple[float, float]], source: str) -> Law:
    (nearest_s, least_s), *others = points
    steps = [(rtt_s - nearest_s, seconds - least_s) for rtt_s, seconds in others]
    slope = max(sum(step * rise for step, rise in steps) / sum(step * step for step, _ in steps), 0.0)
    base_s = max(least_s - slope * nearest_s, 0.0)
    return Law(subject=subject, setting=setting, round_trips=slope, base_s=base_s, source=source)
