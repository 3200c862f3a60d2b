"""A summary of a race in one paragraph.

Covers: the headline, the number of goals met, each missed one. Pure.
"""

from collections.abc import Sequence

from emlio.units import format_duration
from emlio_bench.harness.spread import number, text
from emlio_bench.race.outcome import Contest, Race
from emlio_bench.race.report.check import Check, Outcome
from emlio_bench.race.report.quantity import Quantity
from emlio_bench.race.report.standing import Standing, best_of, standings
from emlio_bench.race.report.verdict import QUICK_WORDS, is_plain, is_quick, our_row

__all__ = ["first_paragraph", "main_contest"]

_MAIN_RTT_NS = 30_000_000


def first_paragraph(race: Race, checks: Sequence[Check]) -> str:
    """Return the summary for readers who read no further."""
    contest = main_contest(race)
    if contest is None:
        return "No run has ended yet."
    sentences = [_headline(standings(race), contest)]
    kept = [check for check in checks if check.outcome is Outcome.KEPT]
    missed = [check for check in checks if check.outcome is Outcome.MISSED]
    unknown = [check for check in checks if check.outcome is Outcome.NOT_MEASURED]
    looked_at = len(kept) + len(missed)
    if is_quick(race):
        sentences.append(QUICK_WORDS)
    elif looked_at:
        sentences.append(f"Goals met: {len(kept)} of {looked_at}, {len(unknown)} not measured.")
    if missed:
        sentences.append(f"Missed: {_shortfalls(missed)}.")
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


def _headline(rows: Sequence[Standing], contest: Contest) -> str:
    ours, own = our_row(rows, contest), [row for row in rows if row.contest == contest]
    mine = None if ours is None else ours.of(Quantity.FIRST_EPOCH)
    if mine is None:
        return ""
    where = (
        f"Over a link with a round trip of {format_duration(contest.rtt_ns)}" if contest.rtt_ns else "With no distance"
    )
    told = f"{where} EMLIO reads {contest.corpus.text}, from construction to the last batch, in {_seconds(mine.median)}"
    best = best_of(row for row in own if row.is_rival)
    theirs = None if best is None else best.of(Quantity.FIRST_EPOCH)
    if best is None or theirs is None:
        return f"{told}."
    who = f"{best.entrant.subject} ({best.entrant.setting})"
    return f"{told}; the fastest other system is {who} with {text(theirs, spread=False)} s."


def _seconds(value: float) -> str:
    return f"{number(value)} s"


def _shortfalls(missed: Sequence[Check]) -> str:
    """Return the missed checks. Their reasons are in the table of all checks."""
    return ", ".join(
        f"{check.name} {text(check.figure, spread=False)} (goal {check.required.bound})" for check in missed
    )
