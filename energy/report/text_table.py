"""A table and its cells, as text and as Markdown.

Covers: layout; how energies, powers and unknown values are written. Does not cover: the content.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from emlio.energy.values.domain import Method
from emlio.energy.values.total import Total

__all__ = ["ABSENT", "TextTable", "figure", "joules", "kilojoules", "kilojoules_of"]

ABSENT = "-"
"""An unknown value. It is not 0."""

_DIGITS = 4

_OF_KILOJOULES = 5
"""Decimals: 10 mJ. Smaller values, as from separately rounded sums, carry no information."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """Rows under a header.

    Attributes:
        title: of the table.
        header: the names of the columns.
        rows: each with as many cells as the header.
        names: how many columns from the left hold words and are left-aligned; others are
            right-aligned.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1

    def text(self) -> str:
        """Return the table for a terminal."""
        lines = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        laid = ["  ".join(self._padded(line, widths)).rstrip() for line in lines]
        return "\n".join([self.title, *(f"  {line}" for line in laid)])

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rules = [":--" if place < self.names else "--:" for place in range(len(self.header))]
        lines = [self.header, tuple(rules), *self.rows]
        return "\n".join([f"**{self.title}**", "", *("| " + " | ".join(line) + " |" for line in lines)])

    def _padded(self, line: Sequence[str], widths: Sequence[int]) -> list[str]:
        return [
            cell.ljust(width) if place < self.names else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]


def figure(value: float | None, most_decimals: int | None = None) -> str:
    """Format a number with four significant digits, without an exponent.

    Args:
        value: the number.
        most_decimals: limit of decimals; a value that rounds to 0 with them is shown as 0. None for
            no limit.
    """
    if value is None:
        return ABSENT
    if value == 0 or (most_decimals is not None and round(value, most_decimals) == 0):
        return "0"
    exponent = int(f"{value:.{_DIGITS - 1}e}".partition("e")[2])
    decimals = max(_DIGITS - 1 - exponent, 0)
    return f"{value:,.{decimals if most_decimals is None else min(decimals, most_decimals)}f}"


def joules(
    total: Total, per: float = 1e6, *, unit: str = "", error: bool = True, most_decimals: int | None = None
) -> str:
    """Format a sum with its marks: ≥ if a part is missing, ~ and the error for an estimate.

    Args:
        total: the sum.
        per: microjoules in the requested unit.
        unit: appended to the figure.
        error: whether to append an estimate's error.
        most_decimals: as for `figure`.
    """
    if total.energy_uj is None:
        return ABSENT
    least = "≥" if total.at_least else ""
    about = "~" if total.method is Method.ESTIMATED else ""
    off = "" if total.error is None or not error else f" ±{total.error:.0%}"
    return f"{least}{about}{figure(total.energy_uj / per, most_decimals)}{unit}{off}"


def kilojoules(total: Total) -> str:
    """Format a sum in kilojoules with its marks.

    An estimate's error is shown elsewhere; in each cell it would make a table too wide.
    """
    return joules(total, 1e9, error=False, most_decimals=_OF_KILOJOULES)


def kilojoules_of(energy_uj: int) -> str:
    """Format microjoules as kilojoules."""
    return figure(energy_uj / 1e9, _OF_KILOJOULES)
