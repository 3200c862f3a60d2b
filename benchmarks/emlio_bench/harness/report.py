"""The report of results: parts of text, points and tables, for a terminal and as Markdown with a picture."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from emlio.errors import ConfigError
from emlio.units import format_size
from emlio_bench.harness.plot import png_bytes
from emlio_bench.harness.results import RESULTS, Figure, Results, write_results
from emlio_bench.harness.spread import Spread, spread
from emlio_bench.harness.subject import LIMITS
from emlio_bench.harness.summary import Row, doubts, summarise
from emlio_bench.harness.table import Table, escaped

__all__ = [
    "PICTURE",
    "REPORT",
    "Part",
    "environment_table",
    "label",
    "missed_bounds",
    "result_parts",
    "text_page",
    "write_report",
]

REPORT: Final = "report.md"
PICTURE: Final = "figures.png"

_LABELS: Final = {
    "bare": "bare PUSH/PULL pair",
    "iperf3": "iperf3, one stream",
    "paper": "the paper's method, shard order",
}
_ORDERS: Final = {"block": "block order", "global": "global order", "none": "file order", "shard": "shard order"}
_WAYS: Final = {
    "": "verified",
    "keyed": "keys only",
    "rows": "verified, rows",
    "sealed": "sealed",
    "views": "verified, each record sliced",
}
_READING: Final = (
    "Median (least..most). Ratios are of neighbours in the same round; GB are 10^9 bytes of payload; CPU seconds "
    "per GB are of\nthe sending plus the receiving process."
)


def label(subject: str) -> str:
    """Return a subject's display name."""
    if subject in _LABELS:
        return _LABELS[subject]
    ours, _, rest = subject.partition("-")
    order, _, way = rest.partition("-")
    if ours != "emlio" or order not in _ORDERS or way not in _WAYS:
        return subject
    return f"EMLIO, {_ORDERS[order]}, {_WAYS[way]}"


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
    """Return the whole report of a run. The environment comes first."""
    rows = summarise(results) if any("bytes/s" in run.values for run in results.runs) else ()
    scenarios = dict.fromkeys(row.scenario for row in rows)
    return (
        Part(tables=(environment_table(results),)),
        *(Part(tables=(_scenario_table(rows, scenario),)) for scenario in scenarios),
        Part(text=_READING if rows else ""),
        Part(heading="Caveats", points=doubts(rows)),
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


def _scenario_table(rows: Sequence[Row], scenario: str) -> Table:
    chosen = [row for row in rows if row.scenario == scenario]
    limit = next((row.subject for row in chosen if row.subject in LIMITS), None)
    return Table(
        header=(
            f"{scenario} records",
            "GB/s",
            "records/s",
            f"of {limit}" if limit else "",
            "of bare pair",
            "CPU s/GB",
            "CPU of bare pair",
            "first batch",
            "protected by",
        ),
        rows=tuple(
            (
                label(row.subject),
                _spread(row.bytes_per_s, "{:.2f}", 1e-9),
                f"{row.records_per_s.median:,.0f}" if row.records_per_s else "",
                _spread(row.of_limit, "{:.0f}", 100, " %") if row.of_limit else "",
                _spread(row.of_bare, "{:.0f}", 100, " %") if row.of_bare else "",
                f"{row.sender_s_per_gb.median:.2f} + {row.receiver_s_per_gb.median:.2f}",
                _spread(row.cpu_of_bare, "{:.2f}", 1, " x") if row.cpu_of_bare else "",
                f"{row.first_batch_ms.median:.0f} ms" if row.first_batch_ms else "",
                row.protection,
            )
            for row in chosen
        ),
    )


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


def _spread(of: Spread, form: str, factor: float, unit: str = "") -> str:
    median, least, most = (form.format(value * factor) for value in (of.median, of.least, of.most))
    return f"{median}{unit} ({least}..{most})"
