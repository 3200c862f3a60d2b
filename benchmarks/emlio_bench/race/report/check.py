"""One requirement of a race, and whether the race meets it.

Covers: the values, deciding when the figure is only a bound, ratios within rounds. Pure. Does not
cover: the requirements (emlio_bench.race.report.verdict), their words
(emlio_bench.race.report.verdict_words).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from emlio_bench.harness.spread import Seen, Spread, spread
from emlio_bench.race.report.quantity import Quantity, seen_of
from emlio_bench.race.report.standing import Standing

__all__ = ["Check", "Outcome", "Requirement", "better_in", "same_round_ratio"]


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
    figure: Spread | None
    unit: str
    bound: str
    outcome: Outcome
    why: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A bound that a figure must keep.

    Attributes:
        name: see `Check`.
        words: see `Check`.
        bound: the bound.
        unit: see `Check`.
        sign: ">=" if the figure must be at least the bound, "<=" if at most.
    """

    name: str
    words: str
    bound: float
    unit: str = "times"
    sign: Literal[">=", "<="] = ">="

    def check(self, figure: Spread | None, contest: str, *, why: str = "", note: str = "") -> Check:
        """Check a figure by its median.

        A median that is only a bound can keep the requirement or miss it, but not both: a lower
        bound above the requirement keeps `>=`, and one below it decides nothing.

        Args:
            figure: the figure; None if the two subjects share no round.
            contest: see `Check`.
            why: possible reason, used if the bound is missed.
            note: see `Check`.
        """
        outcome, reason = self._decide(figure, why)
        return Check(
            name=self.name,
            words=self.words,
            contest=contest,
            figure=figure,
            unit=self.unit,
            bound=self._bound(),
            outcome=outcome,
            why=reason,
            note=note,
        )

    def unknown(self, why: str) -> Check:
        """Return a check that this race cannot make."""
        return Check(
            name=self.name,
            words=self.words,
            contest="",
            figure=None,
            unit="",
            bound=self._bound(),
            outcome=Outcome.NOT_MEASURED,
            why=why,
        )

    def _bound(self) -> str:
        return f"{self.sign} {self.bound:g} {self.unit if self.unit in ('%', 'ms') else ''}".rstrip()

    def _decide(self, figure: Spread | None, why: str) -> tuple[Outcome, str]:
        if figure is None:
            return Outcome.NOT_MEASURED, "no round in which both came to an end"
        kept_by = self.sign[0]
        good = figure.median >= self.bound if kept_by == ">" else figure.median <= self.bound
        if good and figure.sign in ("", kept_by):
            return Outcome.KEPT, ""
        if not good and figure.sign != kept_by:
            return Outcome.MISSED, why
        return Outcome.NOT_MEASURED, "runs were cut before it could be told"


def same_round_ratio(
    upper: Standing,
    lower: Standing,
    quantity: Quantity,
    lower_quantity: Quantity | None = None,
) -> Spread | None:
    """Return the ratio of two subjects, taken within rounds; None if they share no round.

    A ratio within a round does not depend on later changes of the machine's speed.

    Args:
        upper: the numerator.
        lower: the denominator; rounds in which its run was cut do not count.
        quantity: quantity of both subjects.
        lower_quantity: another quantity for `lower`.
    """
    if lower.contest != upper.contest:
        return None
    below = _by_round(lower, lower_quantity or quantity)
    found = [
        Seen(value=above.median / base.median, beyond=above.sign)
        for number, above in _by_round(upper, quantity).items()
        if (base := below.get(number)) is not None and not base.sign and base.median > 0
    ]
    return spread(found) if found else None


def _by_round(row: Standing, quantity: Quantity) -> dict[int, Spread]:
    """Return the values of each round, several after an interrupted race."""
    rounds: dict[int, list[Seen]] = {}
    for run in row.runs:
        seen = seen_of(quantity, row.contest, run)
        if seen is not None:
            rounds.setdefault(run.round, []).append(seen)
    return {number: spread(seen) for number, seen in rounds.items()}


def better_in(rows: Sequence[Standing], ours: Standing, quantity: Quantity) -> tuple[tuple[Standing, Spread], ...]:
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
