"""The report of a race as one self-contained HTML page.

Covers: HTML, light and dark styles, plots for a desktop and for a phone, all data for programs.
Pure. Does not cover: the contents (emlio_bench.race.document).
"""

from collections.abc import Sequence
from html import escape
from typing import Final

import msgspec

from emlio.energy.report.text_table import TextTable
from emlio_bench.race.document import TITLE, Part, Picture, race_parts
from emlio_bench.race.outcome import Race
from emlio_bench.race.palette import GRID, INK, MUTED, PAPER

__all__ = ["DATA_ID", "race_page"]

DATA_ID: Final = "race"
"""The id of the script element that holds all data as JSON."""

_COLOURS: Final = ((INK, "var(--ink)"), (MUTED, "var(--muted)"), (GRID, "var(--line)"), (PAPER, "var(--paper)"))
_LONG: Final = 26
"""The length of a cell above which its text may wrap."""

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
td.long:first-child { min-width: 9.5rem; }
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


def race_page(race: Race, pictures: Sequence[Picture] = (), *, without: str = "") -> str:
    """Return the page.

    Args:
        race: the race as far as it has run.
        pictures: plots of the race.
        without: reason why there are no plots.
    """
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(TITLE)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(TITLE)}</h1>",
        *([f"<p>{escape(without)}</p>"] if without else []),
        *map(_part, race_parts(race, pictures)),
        f'<script type="application/json" id="{DATA_ID}">{_data(race)}</script>',
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _data(race: Race) -> str:
    """Encode the race as JSON in which no tag can begin or end."""
    return msgspec.json.encode(race).decode().replace("<", "\\u003c")


def _part(part: Part) -> str:
    lines: list[str] = []
    if part.heading:
        lines.append(f"<h2>{escape(part.heading)}</h2>")
    if part.text:
        kind = "" if part.heading else ' class="first"'
        lines.append(f"<p{kind}>{escape(part.text)}</p>")
    if part.points:
        points = "".join(f"<li>{escape(point)}</li>" for point in part.points)
        lines.append(f'<ul class="doubts">{points}</ul>')
    lines += map(_picture, part.pictures)
    for table in part.tables:
        title = part.title_of(table)
        lines += [f'<p class="title">{escape(title)}</p>'] * bool(title) + [_grid(table)]
    lines += [f"<details><summary>{escape(table.title)}</summary>{_grid(table)}</details>" for table in part.folded]
    return "\n".join(lines)


def _picture(picture: Picture) -> str:
    return (
        f'<figure><div class="wide">{_recoloured(picture.wide)}</div><div class="narrow">{_recoloured(picture.narrow)}</div>'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _recoloured(svg: str) -> str:
    """Replace the fixed colours of a plot with the page's variables."""
    for fixed, variable in _COLOURS:
        svg = svg.replace(fixed, variable)
    return svg


def _grid(table: TextTable) -> str:
    head = "".join(_cell("th", place, words, table) for place, words in enumerate(table.header))
    rows = "".join(
        f"<tr{_kind(row)}>{''.join(_cell('td', place, words, table) for place, words in enumerate(row))}</tr>"
        for row in table.rows
    )
    top = f"<tr>{head}</tr>" if any(table.header) else ""
    return f'<div class="box"><table>{top}{rows}</table></div>'


def _cell(kind: str, place: int, words: str, table: TextTable) -> str:
    kinds = ["word"] if place < table.names else []
    if kind == "td" and len(words) > _LONG:
        kinds.append("long")
    if words.startswith(("MISSED", "no: ")):
        kinds.append("missed")
    marked = f' class="{" ".join(kinds)}"' if kinds else ""
    return f"<{kind}{marked}>{escape(words)}</{kind}>"


def _kind(row: tuple[str, ...]) -> str:
    return ' class="ours"' if row[:2] == ("emlio", "default") else ""
