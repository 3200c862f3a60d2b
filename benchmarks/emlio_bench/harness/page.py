"""A report of results: for a terminal, as Markdown, and as one self-contained HTML page.

Covers: the parts of a report; all its forms; light and dark styles, plots for a desktop and for a
phone, all data for programs; the files of a report. Does not cover: the contents, drawing
(emlio_bench.harness.plot), generated tables in a page written by hand
(emlio_bench.harness.document).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

import msgspec

from emlio.errors import ConfigError
from emlio_bench.harness.palette import GRID, INK, MUTED, PAPER
from emlio_bench.harness.results import Results, write_results
from emlio_bench.harness.table import Table, escaped

__all__ = [
    "DATA_ID",
    "PAGE",
    "REPORT",
    "RESULTS",
    "Part",
    "Picture",
    "html_page",
    "markdown_page",
    "text_page",
    "write_report",
]

PAGE: Final = "report.html"
REPORT: Final = "report.md"
RESULTS: Final = "results.json"
DATA_ID: Final = "results"
"""The id of the script element that holds all data as JSON."""

_COLOURS: Final = ((INK, "var(--ink)"), (MUTED, "var(--muted)"), (GRID, "var(--line)"), (PAPER, "var(--paper)"))

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #262626; --muted: #6c6c6c; --line: #dedede; --paper: #ffffff; --ours: #e9f2fb;
  --warn: #fdf0ee; --mark: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e4; --muted: #a3a3a3; --line: #3d4147; --paper: #16181b; --ours: #1c2c3c; --warn: #33211f;
    --mark: #ff8a80; }
}
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto; padding: 1rem;
  max-width: 80rem; }
body > p, figure, .doubts { max-width: 60rem; }
h1 { font-size: 1.45rem; line-height: 1.25; margin: 0.5rem 0 1rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 0.6rem; border-top: 1px solid var(--line); padding-top: 1rem; }
p, li, figcaption { overflow-wrap: anywhere; }
.first { font-size: 1.05rem; }
ul { padding-left: 1.2rem; margin: 0.5rem 0; }
.doubts { background: var(--warn); border-left: 4px solid var(--mark); padding: 0.6rem 0.9rem 0.6rem 2rem; }
.box { overflow-x: auto; margin: 0.3rem 0 1.2rem; }
.title { font-weight: 600; margin: 1rem 0 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.875rem; line-height: 1.35; }
th, td { padding: 0.3rem 0.5rem; text-align: right; vertical-align: top; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { border-bottom: 2px solid var(--muted); font-weight: 600; vertical-align: bottom; white-space: normal; min-width: 4.5rem; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--paper); }
td.word, th.word { text-align: left; }
td.long { white-space: normal; min-width: 15rem; }
td.long:first-child { min-width: min(22rem, 42vw); }
tr.ours td, tr.ours td:first-child { background: var(--ours); font-weight: 600; }
td.missed { color: var(--mark); font-weight: 600; }
summary { cursor: pointer; color: var(--muted); font-size: 0.9rem; }
figure { margin: 0 0 2rem; }
figure svg { display: block; width: 100%; height: auto; }
.narrow svg { max-width: 27rem; }
.wide { display: none; }
figcaption { color: var(--muted); font-size: 0.85rem; margin-top: 0.3rem; }
@media (min-width: 44rem) { .wide { display: block; } .narrow { display: none; } }
@media print { details > * { display: block; } }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A plot in the report.

    Attributes:
        name: name of its files.
        caption: caption.
        wide: svg element for a desktop.
        narrow: svg element for a phone.
        png: the wide plot as a PNG file.
    """

    name: str
    caption: str
    wide: str
    narrow: str
    png: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A heading with its contents.

    Attributes:
        heading: heading; empty for the part before the first heading.
        text: paragraph.
        points: list items.
        pictures: plots, after the text.
        tables: tables, after the plots.
        folded: tables of details, collapsed on a web page and absent elsewhere.
    """

    heading: str = ""
    text: str = ""
    points: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    folded: tuple[Table, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.points or self.pictures or self.tables or self.folded)

    def title_of(self, table: Table) -> str:
        """Return the title of one of the part's tables; empty if it repeats the heading."""
        return "" if table.title == self.heading else table.title


def text_page(parts: Iterable[Part]) -> str:
    """Return the report for a terminal, without plots."""
    return "\n\n".join(block for part in parts if part for block in _text_blocks(part))


def _text_blocks(part: Part) -> list[str]:
    points = [f"  {point}" for point in part.points]
    tables = [f"{title}\n{table.text()}" if (title := part.title_of(table)) else table.text() for table in part.tables]
    if part.heading and points:
        points.insert(0, f"{part.heading}:")
    return [block for block in (part.text, "\n".join(points), *tables) if block]


def markdown_page(title: str, parts: Iterable[Part]) -> str:
    """Return the report as Markdown. The files of plots are beside it, under their names."""
    return "\n\n".join([f"# {title}", *(block for part in parts if part for block in _markdown_blocks(part))]) + "\n"


def _markdown_blocks(part: Part) -> list[str]:
    blocks = [f"## {part.heading}"] if part.heading else []
    if part.text:
        blocks.append(escaped(part.text))
    if part.points:
        blocks.append("\n".join(f"* {escaped(point)}" for point in part.points))
    blocks += [f"![{picture.caption}]({picture.name}.svg)\n\n*{picture.caption}*" for picture in part.pictures]
    for table in part.tables:
        title = part.title_of(table)
        blocks += [f"**{title}**"] * bool(title) + [table.markdown()]
    if part.folded:
        blocks.append(f"[Details]({PAGE}): {', '.join(escaped(table.title) for table in part.folded)}.")
    return blocks


def html_page(title: str, parts: Iterable[Part], results: Results) -> str:
    """Return the report as a page, with all data in it."""
    # In this form of JSON, no tag can begin or end.
    data = msgspec.json.encode(results).decode().replace("<", "\\u003c")
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        *(line for part in parts if part for line in _html_lines(part)),
        f'<script type="application/json" id="{DATA_ID}">{data}</script>',
        "</body></html>",
    ]
    return "\n".join(lines) + "\n"


def _html_lines(part: Part) -> list[str]:
    lines = [f"<h2>{escape(part.heading)}</h2>"] if part.heading else []
    if part.text:
        kind = "" if part.heading else ' class="first"'
        lines.append(f"<p{kind}>{escape(part.text)}</p>")
    if part.points:
        points = "".join(f"<li>{escape(point)}</li>" for point in part.points)
        lines.append(f'<ul class="doubts">{points}</ul>')
    lines += [
        f'<figure><div class="wide">{_recoloured(picture.wide)}</div><div class="narrow">{_recoloured(picture.narrow)}</div>'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
        for picture in part.pictures
    ]
    for table in part.tables:
        title = part.title_of(table)
        lines += [f'<p class="title">{escape(title)}</p>'] * bool(title) + [table.html()]
    lines += [f"<details><summary>{escape(table.title)}</summary>{table.html()}</details>" for table in part.folded]
    return lines


def _recoloured(svg: str) -> str:
    """Replace the fixed colours of a plot with the page's variables."""
    for fixed, variable in _COLOURS:
        svg = svg.replace(fixed, variable)
    return svg


def write_report(title: str, parts: Sequence[Part], results: Results, folder: Path) -> tuple[Path, ...]:
    """Write the report in all forms, with its plots and the results; return the files, the page first.

    Raises:
        ConfigError: the files cannot be written.
    """
    files = {PAGE: html_page(title, parts, results).encode(), REPORT: markdown_page(title, parts).encode()}
    for picture in (picture for part in parts for picture in part.pictures):
        files |= {f"{picture.name}.svg": f"{picture.wide}\n".encode(), f"{picture.name}.png": picture.png}
    write_results(results, folder / RESULTS)
    try:
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise ConfigError(
            f"a report must go where files can be written: {folder}: {error.strerror or error}"
        ) from error
    return folder / PAGE, folder / REPORT, folder / RESULTS, *(folder / name for name in list(files)[2:])
