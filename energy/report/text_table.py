"""A table and its cells, as text and as Markdown.

Covers: layout; how energies, powers and unknown values are written. Does not cover: the content.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from emlio.energy.values.domain import Method
from emlio.energy.values.total import Total

__all__ = [
    "ABSENT",
    "JOULES",
    "KILOJOULES",
    "EnergyUnit",
    "TextTable",
    "energy",
    "energy_in_words",
    "energy_of",
    "figure",
    "joules",
    "unit_of",
]

ABSENT = "-"
"""An unknown value. It is not 0."""

_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyUnit:
    """A unit of energy.

    Attributes:
        name: as it is written.
        microjoules: in one of it.
        most_decimals: those that make 10 mJ. Smaller values, as from separately rounded sums, carry
            no information.
    """

    name: str
    microjoules: float
    most_decimals: int


JOULES = EnergyUnit(name="J", microjoules=1e6, most_decimals=2)
KILOJOULES = EnergyUnit(name="kJ", microjoules=1e9, most_decimals=5)

_MOST_IN_JOULES_UJ = 10e9
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


def unit_of(*energies_uj: float | None) -> EnergyUnit:
    """Return the unit for a table of these energies."""
    largest_uj = max((abs(one) for one in energies_uj if one is not None), default=0.0)
    return JOULES if largest_uj < _MOST_IN_JOULES_UJ else KILOJOULES


def energy(total: Total, unit: EnergyUnit) -> str:
    """Format a sum in a table of this unit with its marks.

    An estimate's error is shown elsewhere; in each cell it would make a table too wide.
    """
    return joules(total, unit.microjoules, error=False, most_decimals=unit.most_decimals)


def energy_of(energy_uj: float, unit: EnergyUnit | None = None) -> str:
    """Format microjoules in this unit, or with the name of the fitting one."""
    if unit is not None:
        return figure(energy_uj / unit.microjoules, unit.most_decimals)
    own = _own_unit(energy_uj)
    return f"{figure(energy_uj / own.microjoules)} {own.name}"


def energy_in_words(total: Total) -> str:
    """Format a sum with its marks, its unit and its error."""
    own = _own_unit(total.energy_uj or 0)
    return joules(total, own.microjoules, unit=f" {own.name}")


def _own_unit(energy_uj: float) -> EnergyUnit:
    return JOULES if abs(energy_uj) < KILOJOULES.microjoules else KILOJOULES
