"""A table and its cells as text: how energies and unknown values are written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from emlio.energy.values.total import Total

__all__ = [
    "ABSENT",
    "EnergyUnit",
    "TextTable",
    "energy_in_words",
    "error_of",
    "figure",
    "in_words",
    "marked",
    "unit_of",
]

ABSENT = "-"
"""An unknown value. It is not 0."""

_DIGITS = 4
_MOST_IN_JOULES = 10_000.0
"""Tables whose largest energy is smaller are in joules: a thousandth of it must be readable, too."""


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


@dataclass(frozen=True, slots=True)
class EnergyUnit:
    """A unit of energy. 10 mJ is the least that is shown: smaller values come from rounding."""

    name: str
    joules: float
    most_decimals: int

    def cell(self, joules: float | None, of: Total) -> str:
        """Format joules that are part of a sum, with its mark of an estimate."""
        if joules is None:
            return ABSENT
        return f"{'~' if of.is_estimate else ''}{figure(joules / self.joules, self.most_decimals)}"

    def sum(self, one: Total) -> str:
        """Format a sum; its error would make a table too wide."""
        return marked(one, self.joules, self.most_decimals)


_JOULES = EnergyUnit("J", 1.0, 2)
_KILOJOULES = EnergyUnit("kJ", 1e3, 5)


def unit_of(sums: Iterable[Total]) -> EnergyUnit:
    """Return the unit for a table of these sums."""
    largest = max((abs(one.joules) for one in sums if one.joules is not None), default=0.0)
    return _JOULES if largest < _MOST_IN_JOULES else _KILOJOULES


def marked(one: Total, per: float, most_decimals: int | None = None) -> str:
    """Format a sum: ≥ if a part is missing, ~ for an estimate."""
    if one.joules is None:
        return ABSENT
    return f"{'≥' if one.lacks else ''}{'~' if one.is_estimate else ''}{figure(one.joules / per, most_decimals)}"


def error_of(one: Total) -> str:
    """Format the error of an estimate; empty for others."""
    return "" if one.error is None or one.joules is None else f" ±{one.error:.0%}"


def in_words(one: Total) -> str:
    """Format a sum with its marks, its unit and its error."""
    unit = _JOULES if abs(one.joules or 0.0) < 1e3 else _KILOJOULES
    return ABSENT if one.joules is None else f"{marked(one, unit.joules)} {unit.name}{error_of(one)}"


def energy_in_words(joules: float, mark: str = "") -> str:
    """Format joules with the name of the fitting unit."""
    return f"{mark}{in_words(Total(joules=joules))}"
