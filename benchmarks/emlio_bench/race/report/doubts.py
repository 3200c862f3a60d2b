"""Reasons to doubt the results of a race.

Covers: links that missed their target, runs that failed, were cut, or lost or repeated records,
dropped packets, wide spreads, few rounds, estimates. Pure. Does not cover: whether bounds are kept
(emlio_bench.race.report.verdict).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from emlio_bench.link.contract import LinkKind
from emlio_bench.race.outcome import Race
from emlio_bench.race.report.quantity import Quantity
from emlio_bench.race.report.standing import Standing, standings

__all__ = ["estimates", "race_doubts"]

_WIDE: Final = 0.3
_FEW_ROUNDS: Final = 3


def race_doubts(race: Race) -> tuple[str, ...]:
    """Return reasons to doubt the race, one sentence each; general reasons come first."""
    rows = standings(race)
    return (*_of_links(race), *_of_rounds(rows), *_of_runs(race, rows), *_of_spreads(rows))


def estimates(race: Race) -> tuple[str, ...]:
    """Return the estimated values of the race, one sentence each."""
    found = [
        f"energy: {method}"
        for method in dict.fromkeys(run.energy.method for run in race.runs if run.energy is not None)
        if "estimate" in method
    ]
    if any(row.memory == "RSS" for row in standings(race) if row.of(Quantity.PEAK_MEMORY) is not None):
        found.append("memory marked RSS counts pages that processes share in each of them")
    if any(contest.step_ns for contest in race.contests):
        found.append("steps are pauses of a stated length, no computation")
    return tuple(found)


def _of_links(race: Race) -> list[str]:
    found: list[str] = []
    measured = {name for name, _ in race.links}
    objections: dict[str, list[str]] = {}
    for name, report in race.links:
        for reason in report.objections:
            objections.setdefault(reason, []).append(name)
    found += [f"{', '.join(names)}: the link is not what was asked for: {why}" for why, names in objections.items()]
    if any(report.kind is LinkKind.RELAY for _, report in race.links):
        found.append("the link is a relay on loopback: TCP does not see the distance, so figures of streams say little")
    found += [
        f"{contest.name}: the link was not measured"
        for contest in race.contests
        if contest.name not in measured and any(run.contest == contest.name for run in race.runs)
    ]
    if (race.environment.commit or "").endswith("+"):
        found.append(f"files differed from commit {race.environment.commit}")
    return found


def _of_rounds(rows: Sequence[Standing]) -> list[str]:
    # A cut entrant runs only once, since another run would give the same bound.
    counted = [[run for run in row.runs if run.failure is None] for row in rows]
    rounds = [len({run.round for run in runs}) for runs in counted if runs and not any(run.cut for run in runs)]
    few = [count for count in rounds if count < _FEW_ROUNDS]
    if not few:
        return []
    who = "all rows" if len(few) == len(rounds) else f"{len(few)} of {len(rounds)} rows"
    return [f"only {min(few)} round(s) for {who}: {_FEW_ROUNDS} or more make a median"]


def _of_runs(race: Race, rows: Sequence[Standing]) -> list[str]:
    found: list[str] = []
    for row in rows:
        failed = sum(run.failure is not None for run in row.runs)
        if failed:
            found.append(f"{_named(row)}: {failed} of {len(row.runs)} runs failed: {'; '.join(row.failures)}")
        if row.is_wrong:
            found.append(f"{_named(row)}: records lost or repeated ({row.exact}); these runs decide no claim")
    dropped = Counter({contest.name: 0 for contest in race.contests})
    for run in race.runs:
        dropped[run.contest] += run.dropped_packets
    found += [
        f"{name}: the link dropped {count:,} packets that it should not have"
        for name, count in dropped.items()
        if count
    ]
    return found


def _of_spreads(rows: Sequence[Standing]) -> list[str]:
    found: list[str] = []
    for row in rows:
        quantity = Quantity.BIT_RATE if row.entrant.family == "limit" else Quantity.FIRST_EPOCH
        of = row.of(quantity)
        if of is not None and not of.beyond and of.width > _WIDE:
            found.append(
                f"{_named(row)}: its {quantity} wandered by {of.width:.0%} of the median: measure on a quieter machine"
            )
    return found


def _named(row: Standing) -> str:
    return f"{row.contest.name}, {row.entrant.subject} ({row.entrant.setting})"
