"""One quantity over several runs, of which some were cut before their end.

Covers: median and extremes of values and bounds, ratios of two such quantities, their text. Pure. Does not cover: which
quantities there are (emlio.benchmarks.race.quantity).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from emlio.errors import ConfigError

__all__ = ["Beyond", "Extent", "Seen", "extent", "number", "ratio", "text"]

Beyond = Literal["", ">", "<"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one run says of a quantity.

    Attributes:
        value: in the quantity's unit.
        beyond: on which side of `value` the truth lies where the run was cut; empty where this is the truth.
    """

    value: float
    beyond: Beyond = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What several runs say.

    Attributes:
        median: of all; of an even number the mean of the two in the middle.
        least: of all.
        most: of all.
        beyond: on which side of a bound the truth lies, where a run was cut.
        bound: whether the median is a bound and no value.
        count: of runs.
    """

    median: float
    least: float
    most: float
    beyond: Beyond = ""
    bound: bool = False
    count: int = 1

    @property
    def width(self) -> float:
        """How far apart the extremes are, as a part of the median."""
        return (self.most - self.least) / self.median if self.median else 0.0

    @property
    def sign(self) -> Beyond:
        """What stands before the median."""
        return self.beyond if self.bound else ""

    def scaled(self, factor: float) -> "Extent":
        """In another unit."""
        return replace(self, median=self.median * factor, least=self.least * factor, most=self.most * factor)


def extent(seen: Sequence[Seen]) -> Extent:
    """Median and extremes. A bound counts as the worst value, which is what it is: only what is slowest is cut.

    Raises:
        ConfigError: there is nothing, or bounds of both kinds.
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
    """Of two that were not seen in the same rounds: its extremes are the furthest that any two runs allow.

    Raises:
        ConfigError: the lower one is a bound or 0.
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
    """Three digits of it, no more than three decimals where that leaves one."""
    if not value:
        return "0"
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    if abs(value) < 0.1:
        return f"{value:.3f}" if abs(value) >= 0.0005 else f"{value:.6f}".rstrip("0").rstrip(".")
    return f"{value:#.3g}".rstrip(".")


def text(of: Extent | None, form: Callable[[float], str] = number, *, spread: bool = True) -> str:
    """Such as "0.91 (0.9..0.93)" or "> 45", for a table's cell.

    Args:
        of: None is "-": not known, which is not 0.
        form: of one value.
        spread: whether the extremes are told where they differ from the median.
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
