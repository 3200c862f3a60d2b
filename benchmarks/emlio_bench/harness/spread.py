"""The median and extremes of one quantity, of which some values may be bounds.

A run that was cut at its time limit gives a bound: its true value lies beyond the measured one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from emlio.errors import ConfigError

__all__ = ["Beyond", "Spread", "Value", "number", "ratio", "spread", "text"]

Beyond = Literal["", ">", "<"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """The value of a quantity in one run.

    Attributes:
        value: value in the quantity's unit.
        beyond: side of `value` on which the true value lies, if the run was cut; empty if `value`
            is exact.
    """

    value: float
    beyond: Beyond = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The values of a quantity in several runs.

    Attributes:
        median: median of all runs; the mean of the two middle values for an even number of runs.
        least: least value.
        most: greatest value.
        beyond: side of a bound on which the true value lies, if a run was cut.
        bound: whether the median is a bound instead of an exact value.
        least_bound: whether the least value is a bound.
        most_bound: whether the greatest value is a bound.
        count: number of runs.
    """

    median: float
    least: float
    most: float
    beyond: Beyond = ""
    bound: bool = False
    least_bound: bool = False
    most_bound: bool = False
    count: int = 1

    @property
    def width(self) -> float:
        """Distance between the extremes, as a share of the median."""
        return (self.most - self.least) / self.median if self.median else 0.0

    @property
    def sign(self) -> Beyond:
        """Sign in front of the median."""
        return self.beyond if self.bound else ""

    def scaled(self, factor: float) -> "Spread":
        """Return the spread in another unit."""
        return replace(self, median=self.median * factor, least=self.least * factor, most=self.most * factor)


def spread(values: Sequence[float | Value]) -> Spread:
    """Return the median and extremes of at least one value.

    A bound ranks as the worst value. This is correct, because only the slowest runs are cut.

    Raises:
        ConfigError: there is no value, or there are bounds of both kinds.
    """
    if not values:
        raise ConfigError("a spread must be of at least one value")
    found = [one if isinstance(one, Value) else Value(value=one) for one in values]
    sides: set[Beyond] = {one.beyond for one in found if one.beyond}
    if len(sides) > 1:
        raise ConfigError(f"bounds of one quantity must lie on one side, got {sorted(sides)}")
    beyond: Beyond = sides.pop() if sides else ""
    found.sort(key=lambda one: (one.beyond == ">", one.beyond != "<", one.value))
    middle = (found[(len(found) - 1) // 2], found[len(found) // 2])
    least, most = min(one.value for one in found), max(one.value for one in found)
    return Spread(
        median=sum(one.value for one in middle) / len(middle),
        least=least,
        most=most,
        beyond=beyond,
        bound=any(one.beyond for one in middle),
        least_bound=all(one.beyond for one in found if one.value == least),
        most_bound=all(one.beyond for one in found if one.value == most),
        count=len(found),
    )


def ratio(upper: Spread, lower: Spread) -> Spread:
    """Return the ratio of two spreads from different rounds.

    Its extremes are the furthest that any two runs allow.

    Raises:
        ConfigError: the lower spread is a bound or 0.
    """
    if lower.beyond or not lower.least:
        raise ConfigError(f"what is divided by must be known and not 0, got {lower}")
    return replace(
        upper,
        median=upper.median / lower.median,
        least=upper.least / lower.most,
        most=upper.most / lower.least,
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


def text(of: Spread | None, form: Callable[[float], str] = number, *, spread: bool = True) -> str:
    """Format a spread for a table's cell, such as "0.91 (0.9..0.93)" or "> 45".

    Args:
        of: the spread; None gives "-" for an unknown value, which is not 0.
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
        low, high = f"> {low}" if of.least_bound else low, f"> {high}"
    if of.beyond == "<":
        low, high = f"< {low}", f"< {high}" if of.most_bound else high
    return f"{shown} ({low}..{high})"
