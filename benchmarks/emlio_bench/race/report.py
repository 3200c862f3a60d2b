"""The report of a race as Markdown.

Covers: headings, paragraphs, tables, links to plots. Pure. Does not cover: the contents
(emlio_bench.race.document).
"""

from collections.abc import Sequence

from emlio.energy.report.text_table import TextTable
from emlio_bench.race.document import TITLE, Part, Picture, race_parts
from emlio_bench.race.outcome import Race

__all__ = ["render_race"]


def render_race(race: Race, pictures: Sequence[Picture] = ()) -> str:
    """Return the whole report.

    Args:
        race: the race as far as it has run.
        pictures: plots; their files are beside the text, under their names.
    """
    return "\n\n".join([f"# {TITLE}", *map(_part, race_parts(race, pictures))]) + "\n"


def _part(part: Part) -> str:
    blocks = [f"## {part.heading}"] if part.heading else []
    if part.text:
        blocks.append(_escaped(part.text))
    if part.points:
        blocks.append("\n".join(f"* {_escaped(point)}" for point in part.points))
    blocks += [f"![{picture.caption}]({picture.name}.svg)\n\n*{picture.caption}*" for picture in part.pictures]
    for table in (*part.tables, *part.folded):
        title = part.title_of(table)
        blocks += [f"**{title}**"] * bool(title) + [_table(table)]
    return "\n\n".join(blocks)


def _table(table: TextTable) -> str:
    rules = (":--" if place < table.names else "--:" for place in range(len(table.header)))
    lines = [map(_cell, table.header), rules, *(map(_cell, row) for row in table.rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(words: str) -> str:
    return _escaped(words).replace("|", "\\|")


def _escaped(words: str) -> str:
    """Escape text of other programs, so that it contains no markup and one line only."""
    return " ".join(words.split()).replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
