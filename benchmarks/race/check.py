"""One thing that must hold in a race, and whether it does.

Covers: the value, deciding when the figure is only a bound, ratios of neighbours. Pure. Does not cover: what must hold
(emlio.benchmarks.race.verdict), its words (emlio.benchmarks.race.verdict_words).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from emlio.benchmarks.race.extent import Beyond, Extent, Seen, extent
from emlio.benchmarks.race.quantity import Quantity, seen_of
from emlio.benchmarks.race.standing import Standing

__all__ = ["Check", "Outcome", "at_least", "at_most", "better_in", "not_measured", "same_round_ratio"]


class Outcome(StrEnum):
    """How a check came out."""

    KEPT = "kept"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A figure and its bound.

    Attributes:
        name: short and stable.
        words: what must hold, as a clause.
        contest: where; empty for more than one.
        figure: what was found; None where nothing was.
        unit: of the figure: "times", "%", "ms".
        bound: such as ">= 0.90".
        outcome: of it.
        why: in words, where it was missed or not measured.
        note: what else belongs to it.
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
    """Decide by the median. A lower bound may keep it but cannot miss it.

    Args:
        bound: the least that is good.
        figure: None where the two never ran in one round.
        name: see `Check`.
        words: likewise.
        contest: likewise.
        unit: likewise.
        why: it may have been missed.
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
    """As `at_least`, the other way round."""
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
    """A check that this race cannot make."""
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
    """Taken round by round: what the machine did minutes later does not matter. None where they share no round.

    Args:
        upper: what is divided.
        lower: what it is divided by; rounds in which it was cut do not count.
        quantity: of both,
        lower_quantity: or another of `lower`.
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
    """The median where a round has several runs of one entrant, as after a race that was interrupted."""
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
    """Others with less of it, by the ratio of theirs to ours in the same rounds; the least first.

    Args:
        rows: of the same contest.
        ours: what they are compared with.
        quantity: of which less is better.
    """
    found = [
        (row, share)
        for row in rows
        if row is not ours and (share := same_round_ratio(row, ours, quantity)) is not None
        if share.median < 1 and not share.bound
    ]
    return tuple(sorted(found, key=lambda pair: pair[1].median))
