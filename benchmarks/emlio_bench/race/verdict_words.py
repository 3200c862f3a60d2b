"""A summary of a race in one paragraph.

Covers: the headline, the number of kept bounds, each missed bound and its reason, what was not
measured. Pure. Does not cover: the checks (emlio_bench.race.verdict).
"""

from collections.abc import Sequence

from emlio.units import format_duration
from emlio_bench.race.censored_range import number, text
from emlio_bench.race.check import Check, Outcome
from emlio_bench.race.outcome import Contest, Race
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.standing import DEFAULT, Standing, best_of, standings
from emlio_bench.race.verdict import is_plain, our_row

__all__ = ["figure_of", "first_paragraph", "main_contest"]

_MAIN_RTT_NS = 30_000_000


def first_paragraph(race: Race, checks: Sequence[Check]) -> str:
    """Return the summary for readers who read no further."""
    contest = main_contest(race)
    if contest is None:
        return "Nobody has come to an end yet."
    sentences = [_headline(standings(race), contest)]
    kept = [check for check in checks if check.outcome is Outcome.KEPT]
    missed = [check for check in checks if check.outcome is Outcome.MISSED]
    unknown = [check for check in checks if check.outcome is Outcome.NOT_MEASURED]
    looked_at = len(kept) + len(missed)
    if looked_at:
        sentences.append(f"Kept: {len(kept)} of {looked_at} bounds.")
    if missed:
        sentences.append(f"It falls short in {len(missed)}: {_shortfalls(missed)}.")
    if unknown:
        names = dict.fromkeys(check.name for check in unknown)
        sentences.append(f"Not measured: {', '.join(names)}.")
    return " ".join(sentence for sentence in sentences if sentence)


def main_contest(race: Race) -> Contest | None:
    """Return the most important contest that has runs.

    It is the plain contest nearest to 30 ms with the most data, or else the first contest that ran.
    """
    ran = [contest for contest in race.contests if any(run.contest == contest.name for run in race.runs)]
    plain = [contest for contest in ran if is_plain(contest)]
    return min(
        plain or ran[:1],
        key=lambda contest: (abs(contest.rtt_ns - _MAIN_RTT_NS), -contest.corpus.payload_bytes),
        default=None,
    )


def figure_of(check: Check) -> str:
    """Return the figure of a check with its unit, for a table."""
    return f"{text(check.figure)} {check.unit}".rstrip() if check.figure is not None else "-"


def _headline(rows: Sequence[Standing], contest: Contest) -> str:
    ours, own = our_row(rows, contest), [row for row in rows if row.contest == contest]
    mine = None if ours is None else ours.of(Quantity.FIRST_EPOCH)
    if mine is None:
        return ""
    where = (
        f"Over a link with a round trip of {format_duration(contest.rtt_ns)}" if contest.rtt_ns else "With no distance"
    )
    told = f"{where} EMLIO reads {contest.corpus.text}, from construction to the last batch, in {_seconds(mine.median)}"
    others = [best_of(row for row in own if row.is_rival)]
    others += [
        row for row in own if row is not others[0] and row.entrant.family == "files" and row.entrant.setting == DEFAULT
    ]
    told_of = [
        f"{row.entrant.subject} ({row.entrant.setting}) {text(theirs, spread=False)} s"
        for row in others
        if row is not None and (theirs := row.of(Quantity.FIRST_EPOCH)) is not None
    ]
    if not told_of:
        return f"{told}."
    best, *mounted = told_of
    over_mount = f", over a default mount {', '.join(mounted)}" if mounted else ""
    return f"{told}; the best of the others is {best}{over_mount}."


def _seconds(value: float) -> str:
    return f"{number(value)} s"


def _shortfalls(missed: Sequence[Check]) -> str:
    """Return the missed checks with their reasons, each reason once."""
    told: set[str] = set()
    shortfalls: list[str] = []
    for check in missed:
        where = f" in {check.contest}" if check.contest else ""
        reasons = [reason for reason in check.why.split("; ") if reason and reason not in told]
        told.update(reasons)
        why = f" ({'; '.join(reasons)})" if reasons else ""
        figure = f"{text(check.figure, spread=False)} {check.unit}"
        shortfalls.append(f"{check.name}{where}: {figure} where {check.bound} must hold{why}")
    return "; ".join(shortfalls)
