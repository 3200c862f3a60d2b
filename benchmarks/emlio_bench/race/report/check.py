"""One requirement of a race, and whether the race meets it, also where its figure is only a bound."""

import math
from dataclasses import dataclass
from enum import StrEnum

from emlio_bench.harness.spread import Spread, text

__all__ = ["Check", "Outcome", "Requirement"]


class Outcome(StrEnum):
    """The result of a check."""

    KEPT = "kept"
    MISSED = "missed"
    NOT_MEASURED = "not measured"
    FOLLOWS = "follows from time"
    """The figure says no more than the lengths of the epochs, so no bound on it is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A bound that a figure must keep.

    Attributes:
        name: short stable name.
        words: requirement, as a clause.
        least: least good value; None if the figure must be at most `most`.
        most: greatest good value.
        unit: unit of the figure: "times", "%", "ms".
    """

    name: str
    words: str
    least: float | None = None
    most: float = math.inf
    unit: str = "times"

    @property
    def bound(self) -> str:
        """The bound as text, such as ">= 0.90"."""
        sign, bound = ("<=", self.most) if self.least is None else (">=", self.least)
        return f"{sign} {bound:g} {self.unit if self.unit in ('%', 'ms') else ''}".rstrip()

    def check(self, figure: Spread | None, contest: str, *, why: str = "", note: str = "") -> "Check":
        """Check a figure by its median.

        A median that is a bound itself decides only if the true value is on the same side of the
        requirement: that of a cut run is a lower bound, so it can keep `least` and cannot miss it.

        Args:
            figure: the figure; None if the two subjects share no round.
            contest: see `Check`.
            why: possible reason, used if the bound is missed.
            note: see `Check`.
        """
        outcome, reason = self._decide(figure, why)
        return Check(required=self, contest=contest, figure=figure, outcome=outcome, why=reason, note=note)

    def unknown(self, why: str) -> "Check":
        """Return a check that this race cannot make."""
        return Check(required=self, outcome=Outcome.NOT_MEASURED, why=why)

    def _decide(self, figure: Spread | None, why: str) -> tuple[Outcome, str]:
        if figure is None:
            return Outcome.NOT_MEASURED, "no round in which both came to an end with each record once"
        kept_by = "<" if self.least is None else ">"
        good = (self.least is None or figure.median >= self.least) and figure.median <= self.most
        if good and figure.sign in ("", kept_by):
            return Outcome.KEPT, ""
        if not good and figure.sign != kept_by:
            return Outcome.MISSED, why
        return Outcome.NOT_MEASURED, "runs were cut before it could be told"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A requirement and what a race found.

    Attributes:
        required: the requirement.
        outcome: result of the check.
        contest: name of the contest; empty for more than one contest.
        figure: measured value; None if nothing was measured.
        why: reason, if the bound was missed or not measured.
        note: further remarks.
    """

    required: Requirement
    outcome: Outcome
    contest: str = ""
    figure: Spread | None = None
    why: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        """Name of the requirement."""
        return self.required.name

    @property
    def found(self) -> str:
        """The figure with its unit, for a table."""
        return f"{text(self.figure)} {self.required.unit}".rstrip() if self.figure is not None else "-"
