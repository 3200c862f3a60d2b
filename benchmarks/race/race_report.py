"""A race's report as Markdown.

Covers: headings, paragraphs, tables, links to pictures. Pure. Does not cover: what is told (emlio.benchmarks.race.race_document).
"""

from collections.abc import Sequence

from emlio.benchmarks.race.outcome import Race
from emlio.benchmarks.race.race_document import TITLE, Part, Picture, race_parts
from emlio.energy.text_table import TextTable

__all__ = ["render_race"]


def render_race(race: Race, pictures: Sequence[Picture] = ()) -> str:
    """All of it.

    Args:
        race: as far as it came.
        pictures: their files lie beside the text, by their names.
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
    """What others wrote stays text: no markup, and one line."""
    return " ".join(words.split()).replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
