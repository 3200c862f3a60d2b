"""One requirement of a race, and whether the race meets it.

Covers: the value, deciding when the figure is only a bound, ratios within rounds. Pure. Does not
cover: the requirements (emlio_bench.race.verdict), their words
(emlio_bench.race.verdict_words).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from emlio_bench.race.censored_range import Beyond, Extent, Seen, extent
from emlio_bench.race.quantity import Quantity, seen_of
from emlio_bench.race.standing import Standing

__all__ = ["Check", "Outcome", "at_least", "at_most", "better_in", "not_measured", "same_round_ratio"]


class Outcome(StrEnum):
    """The result of a check."""

    KEPT = "kept"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A figure and its bound.

    Attributes:
        name: short stable name.
        words: requirement, as a clause.
        contest: name of the contest; empty for more than one contest.
        figure: measured value; None if nothing was measured.
        unit: unit of the figure: "times", "%", "ms".
        bound: bound as text, such as ">= 0.90".
        outcome: result of the check.
        why: reason, if the bound was missed or not measured.
        note: further remarks.
    """

    name: str
    words: str
    contest: str
    figure: Extent | None
    unit: str
    bound: str
    outcome: Outcome
    why: str = ""
    note: str = ""


def at_least(
    bound: float, figure: Extent | None, *, name: str, words: str, contest: str, unit: str, why: str, note: str = ""
) -> Check:
    """Check that a figure is at least `bound`, by its median.

    A median that is only a lower bound can keep the requirement but cannot miss it.

    Args:
        bound: the least good value.
        figure: the figure; None if the two subjects share no round.
        name: see `Check`.
        words: see `Check`.
        contest: see `Check`.
        unit: see `Check`.
        why: possible reason, used if the bound is missed.
        note: see `Check`.
    """
    outcome, reason = _decide(figure, good=figure is not None and figure.median >= bound, kept_by=">", why=why)
    return Check(
        name=name,
        words=words,
        contest=contest,
        figure=figure,
        unit=unit,
        bound=_bound(">=", bound, unit),
        outcome=outcome,
        why=reason,
        note=note,
    )


def at_most(
    bound: float, figure: Extent | None, *, name: str, words: str, contest: str, unit: str, why: str, note: str = ""
) -> Check:
    """Check that a figure is at most `bound`, by its median. See `at_least`."""
    outcome, reason = _decide(figure, good=figure is not None and figure.median <= bound, kept_by="<", why=why)
    return Check(
        name=name,
        words=words,
        contest=contest,
        figure=figure,
        unit=unit,
        bound=_bound("<=", bound, unit),
        outcome=outcome,
        why=reason,
        note=note,
    )


def _bound(sign: str, bound: float, unit: str) -> str:
    return f"{sign} {bound:g} {unit if unit in ('%', 'ms') else ''}".rstrip()


def _decide(figure: Extent | None, *, good: bool, kept_by: Beyond, why: str) -> tuple[Outcome, str]:
    if figure is None:
        return Outcome.NOT_MEASURED, "no round in which both came to an end"
    sign = figure.sign
    if good and sign in ("", kept_by):
        return Outcome.KEPT, ""
    if not good and sign != kept_by:
        return Outcome.MISSED, why
    return Outcome.NOT_MEASURED, "runs were cut before it could be told"


def not_measured(name: str, words: str, bound: str, why: str) -> Check:
    """Return a check that this race cannot make."""
    return Check(
        name=name,
        words=words,
        contest="",
        figure=None,
        unit="",
        bound=bound,
        outcome=Outcome.NOT_MEASURED,
        why=why,
    )


def same_round_ratio(
    upper: Standing,
    lower: Standing,
    quantity: Quantity,
    lower_quantity: Quantity | None = None,
) -> Extent | None:
    """Return the ratio of two subjects, taken within rounds; None if they share no round.

    A ratio within a round does not depend on later changes of the machine's speed.

    Args:
        upper: the numerator.
        lower: the denominator; rounds in which its run was cut do not count.
        quantity: quantity of both subjects.
        lower_quantity: another quantity for `lower`.
    """
    contest = upper.contest
    below = _by_round(lower, lower_quantity or quantity)
    found: list[Seen] = []
    for number, above in _by_round(upper, quantity).items():
        base = below.get(number)
        if base is not None and not base.beyond and base.value > 0 and lower.contest == contest:
            found.append(Seen(value=above.value / base.value, beyond=above.beyond))
    return extent(found) if found else None


def _by_round(row: Standing, quantity: Quantity) -> dict[int, Seen]:
    """Return the value of each round.

    The value is a median if a round has several runs of one entrant, as after an interrupted race.
    """
    rounds: dict[int, list[Seen]] = {}
    for run in row.runs:
        seen = seen_of(quantity, row.contest, run)
        if seen is not None:
            rounds.setdefault(run.round, []).append(seen)
    return {number: _middle(seen) for number, seen in rounds.items()}


def _middle(seen: Sequence[Seen]) -> Seen:
    of = extent(seen)
    return Seen(value=of.median, beyond=of.sign)


def better_in(rows: Sequence[Standing], ours: Standing, quantity: Quantity) -> tuple[tuple[Standing, Extent], ...]:
    """Return the subjects with less of a quantity than ours, and their ratios, least first.

    The ratios divide their value by ours, within rounds.

    Args:
        rows: subjects of the same contest.
        ours: the subject that they are compared with.
        quantity: a quantity of which less is better.
    """
    found = [
        (row, share)
        for row in rows
        if row is not ours and (share := same_round_ratio(row, ours, quantity)) is not None
        if share.median < 1 and not share.bound
    ]
    return tuple(sorted(found, key=lambda pair: pair[1].median))
