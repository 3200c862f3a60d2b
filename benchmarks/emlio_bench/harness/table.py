"""A table, for a terminal and for Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Table", "align", "escaped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under a header.

    Attributes:
        header: names of the columns; all empty for a table without a header.
        rows: rows, each with as many cells as the header.
        title: title, if any.
        names: number of columns from the left that hold words and are left-aligned.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    names: int = 1

    def text(self) -> str:
        """Return the table for a terminal, without its title and without empty columns."""
        kept = [column for column in range(len(self.header)) if any(row[column] for row in self.rows)]
        lines = [self.header, *self.rows] if any(self.header) else self.rows
        widths = {column: max(len(line[column]) for line in lines) for column in kept}
        laid = [
            "  ".join(
                line[column].ljust(widths[column]) if column < self.names else line[column].rjust(widths[column])
                for column in kept
            ).rstrip()
            for line in lines
        ]
        if any(self.header):
            laid.insert(1, "-" * (sum(widths.values()) + 2 * (len(widths) - 1)))
        return "\n".join(laid)

    def markdown(self) -> str:
        """Return the table as Markdown, without its title."""
        rules = tuple(":--" if place < self.names else "--:" for place in range(len(self.header)))
        lines = (
            self.header,
            rules,
            *(tuple(escaped(cell).replace("|", "\\|") for cell in row) for row in self.rows),
        )
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def align(table: Sequence[tuple[str, ...]]) -> str:
    """Return a table for a terminal, from a header and rows."""
    header, *rows = table
    return Table(header=header, rows=tuple(rows)).text()


def escaped(words: str) -> str:
    """Return text of other programs for Markdown, without markup and in one line."""
    return " ".join(words.split()).replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
