"""One quantity over several runs, of which some were cut at the limit.

Covers: median and extremes of values and bounds, ratios of two such quantities, their text. Pure.
Does not cover: the quantities (emlio_bench.race.quantity).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from emlio.errors import ConfigError

__all__ = ["Beyond", "Extent", "Seen", "extent", "number", "ratio", "text"]

Beyond = Literal["", ">", "<"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The value of a quantity in one run.

    Attributes:
        value: value in the quantity's unit.
        beyond: side of `value` on which the true value lies, if the run was cut; empty if `value`
            is exact.
    """

    value: float
    beyond: Beyond = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The values of a quantity in several runs.

    Attributes:
        median: median of all runs; the mean of the two middle values for an even number of runs.
        least: least value.
        most: greatest value.
        beyond: side of a bound on which the true value lies, if a run was cut.
        bound: whether the median is a bound instead of an exact value.
        count: number of runs.
    """

    median: float
    least: float
    most: float
    beyond: Beyond = ""
    bound: bool = False
    count: int = 1

    @property
    def width(self) -> float:
        """Distance between the extremes, as a share of the median."""
        return (self.most - self.least) / self.median if self.median else 0.0

    @property
    def sign(self) -> Beyond:
        """Sign in front of the median."""
        return self.beyond if self.bound else ""

    def scaled(self, factor: float) -> "Extent":
        """Return the extent in another unit."""
        return replace(self, median=self.median * factor, least=self.least * factor, most=self.most * factor)


def extent(seen: Sequence[Seen]) -> Extent:
    """Return the median and extremes of several runs.

    A bound ranks as the worst value. This is correct, because only the slowest runs are cut.

    Raises:
        ConfigError: there is no run, or there are bounds of both kinds.
    """
    if not seen:
        raise ConfigError("an extent must be of at least one run")
    sides: set[Beyond] = {one.beyond for one in seen if one.beyond}
    if len(sides) > 1:
        raise ConfigError(f"bounds of one quantity must lie on one side, got {sorted(sides)}")
    beyond: Beyond = sides.pop() if sides else ""
    ordered = sorted(seen, key=lambda one: (one.beyond == ">", one.beyond != "<", one.value))
    values = [one.value for one in ordered]
    middle = (ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2])
    return Extent(
        median=sum(one.value for one in middle) / len(middle),
        least=min(values),
        most=max(values),
        beyond=beyond,
        bound=any(one.beyond for one in middle),
        count=len(seen),
    )


def ratio(upper: Extent, lower: Extent) -> Extent:
    """Return the ratio of two extents from different rounds.

    Its extremes are the furthest that any two runs allow.

    Raises:
        ConfigError: the lower extent is a bound or 0.
    """
    if lower.beyond or not lower.least:
        raise ConfigError(f"what is divided by must be known and not 0, got {lower}")
    return Extent(
        median=upper.median / lower.median,
        least=upper.least / lower.most,
        most=upper.most / lower.least,
        beyond=upper.beyond,
        bound=upper.bound,
        count=min(upper.count, lower.count),
    )


def number(value: float) -> str:
    """Format a number with three digits, or with at most three decimals if one digit remains."""
    if not value:
        return "0"
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    if abs(value) < 0.1:
        return f"{value:.3f}" if abs(value) >= 0.0005 else f"{value:.6f}".rstrip("0").rstrip(".")
    return f"{value:#.3g}".rstrip(".")


def text(of: Extent | None, form: Callable[[float], str] = number, *, spread: bool = True) -> str:
    """Format an extent for a table's cell, such as "0.91 (0.9..0.93)" or "> 45".

    Args:
        of: the extent; None gives "-" for an unknown value, which is not 0.
        form: formats one value.
        spread: whether to show the extremes if they differ from the median.
    """
    if of is None:
        return "-"
    shown = f"{of.sign} {form(of.median)}" if of.bound else form(of.median)
    low, high = form(of.least), form(of.most)
    if not spread or low == high == form(of.median):
        return shown
    if of.beyond == ">":
        high = f"> {high}"
    if of.beyond == "<":
        low = f"< {low}"
    return f"{shown} ({low}..{high})"
