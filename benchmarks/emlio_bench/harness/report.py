"""The report of results: parts of text, points and tables, for a terminal and as Markdown with a picture."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from emlio.errors import ConfigError
from emlio.units import format_size
from emlio_bench.harness.plot import png_bytes
from emlio_bench.harness.results import QUICK, RESULTS, Figure, Results, write_results
from emlio_bench.harness.spread import spread

__all__ = [
    "PICTURE",
    "REPORT",
    "Part",
    "Table",
    "environment_table",
    "escaped",
    "missed_bounds",
    "result_parts",
    "text_page",
    "write_report",
]


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


def escaped(words: str) -> str:
    """Return text of other programs for Markdown, without markup and in one line."""
    return " ".join(words.split()).replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


REPORT: Final = "report.md"
PICTURE: Final = "figures.png"
_QUICK: Final = "--quick shows that all works. Its figures mean nothing."


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a report.

    Attributes:
        heading: heading, if any.
        text: a paragraph.
        points: a list.
        tables: tables, each under its title unless that is the heading.
    """

    heading: str = ""
    text: str = ""
    points: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.points or self.tables)

    def title_of(self, table: Table) -> str:
        """Return the title of a table; empty if it repeats the heading."""
        return "" if table.title == self.heading else table.title


def text_page(parts: Iterable[Part]) -> str:
    """Return the report for a terminal."""
    blocks: list[str] = []
    for part in parts:
        points = [f"  {point}" for point in part.points]
        if part.heading and points:
            points.insert(0, f"{part.heading}:")
        tables = (f"{part.title_of(table)}\n{table.text()}".lstrip("\n") for table in part.tables)
        blocks += [block for block in (part.text, "\n".join(points), *tables) if block]
    return "\n\n".join(blocks)


def write_report(title: str, parts: Sequence[Part], results: Results, folder: Path, figure: Any = None) -> str:
    """Write results, the report as Markdown, and a picture into a folder; return their names."""
    write_results(results, folder / RESULTS)
    picture = [f"![{title}]({PICTURE})"] if figure is not None else []
    files = {REPORT: _markdown(title, picture, parts).encode()}
    if figure is not None:
        files[PICTURE] = png_bytes(figure)
    try:
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise ConfigError(
            f"a report must go where files can be written: {folder}: {error.strerror or error}"
        ) from error
    return ", ".join((*files, RESULTS))


def _markdown(title: str, picture: Sequence[str], parts: Sequence[Part]) -> str:
    blocks = [f"# {title}", *picture]
    for part in filter(None, parts):
        blocks += [f"## {part.heading}"] * bool(part.heading) + [escaped(part.text)] * bool(part.text)
        if part.points:
            blocks.append("\n".join(f"* {escaped(point)}" for point in part.points))
        for table in part.tables:
            name = part.title_of(table)
            blocks += [f"**{name}**"] * bool(name) + [table.markdown()]
    return "\n\n".join(blocks) + "\n"


def result_parts(results: Results) -> tuple[Part, ...]:
    """Return the report of a run that has figures alone. The environment comes first."""
    return (
        Part(text=_QUICK if QUICK in results.settings else "", tables=(environment_table(results),)),
        Part(tables=(_figure_table(results.figures),) if results.figures else ()),
        Part(text="\n".join(dict.fromkeys(figure.note for figure in results.figures if figure.note))),
    )


def missed_bounds(figures: Sequence[Figure]) -> tuple[str, ...]:
    """Return the names of the figures that are outside their bounds."""
    return tuple(figure.name for figure in figures if not _keeps(figure))


def _keeps(figure: Figure) -> bool:
    of = spread(figure.values)
    low, high = (of.least, of.most) if figure.every else (of.median, of.median)
    return (figure.at_most is None or high <= figure.at_most) and (figure.at_least is None or low >= figure.at_least)


def environment_table(results: Results) -> Table:
    """Return the table of the environment and the settings."""
    world = results.environment
    pairs = (
        ("begun", results.begun),
        ("processor", f"{world.cpu or 'unknown'}, {world.cores} cores"),
        ("memory", format_size(world.memory_bytes)),
        ("kernel", f"Linux {world.kernel}"),
        ("TCP", f"{world.tcp_congestion_control}, wmem {world.tcp_wmem}, rmem {world.tcp_rmem}"),
        ("EMLIO", f"{world.emlio} at {world.commit or 'an unknown commit'}"),
        ("software", f"{world.python}, pyzmq {world.pyzmq}, libzmq {world.libzmq}, numpy {world.numpy}"),
        ("iperf3", world.iperf3 or "not installed"),
        *results.settings,
    )
    rows = tuple((name, value) for name, value in pairs if value)
    return Table(header=("", ""), rows=rows, names=2)


def _figure_table(figures: Sequence[Figure]) -> Table:
    rows: list[tuple[str, ...]] = []
    for figure in figures:
        of = spread(figure.values)
        bounds = ((">=", figure.at_least), ("<=", figure.at_most))
        bound = ", ".join(f"{sign} {_number(value)}" for sign, value in bounds if value is not None)
        kept = "ok" if _keeps(figure) else "MISSED"
        extremes = f"{_number(of.least)}..{_number(of.most)}"
        rows.append((figure.name, _number(of.median), extremes, figure.unit, bound, kept if bound else ""))
    return Table(header=("", "median", "least..most", "unit", "must be", ""), rows=tuple(rows))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
