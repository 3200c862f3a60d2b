"""The report of a race as parts, independent of the output format.

Covers: the contents of the report and their order. Pure. Does not cover: the tables' cells
(emlio_bench.race.tables), Markdown (emlio_bench.race.report), HTML
(emlio_bench.race.page), drawing (emlio_bench.race.plots).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from emlio.energy.report.text_table import TextTable
from emlio_bench.race.doubts import estimates, race_doubts
from emlio_bench.race.outcome import Contest, Race
from emlio_bench.race.round_trips import fitted_laws, published_laws
from emlio_bench.race.standing import Standing, by_distance, shown, standings
from emlio_bench.race.tables import (
    checks_table,
    complete_table,
    contest_table,
    entrants_table,
    environment_table,
    laws_table,
    limits_table,
    links_table,
    missing_table,
    paper_table,
    quotes_table,
)
from emlio_bench.race.verdict import verdict
from emlio_bench.race.verdict_words import first_paragraph

__all__ = ["TITLE", "Part", "Picture", "race_parts"]

TITLE = "EMLIO beside others, over a long link on one machine"

_READING = (
    "Epochs count from before a loader's constructor, imports done, to the last batch. Figures are medians over rounds, in "
    "which all take their turn. '>' and '<' mark runs that were cut at their contest's limit: the truth lies beyond. '-' is "
    "not known. Ratios are of neighbours in the same round."
)


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
        folded: tables of details, collapsed.
    """

    heading: str = ""
    text: str = ""
    points: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[TextTable, ...] = ()
    folded: tuple[TextTable, ...] = ()

    def title_of(self, table: TextTable) -> str:
        """Return the title of one of the part's tables; empty if it repeats the heading."""
        return "" if table.title == self.heading else table.title


def race_parts(race: Race, pictures: Sequence[Picture]) -> tuple[Part, ...]:
    """Return all parts in order, without empty ones.

    Args:
        race: the race as far as it has run.
        pictures: plots of the race.
    """
    rows, checks = standings(race), verdict(race)
    doubts, missing = race_doubts(race), missing_table(race.entrants)
    parts = [
        Part(text=first_paragraph(race, checks)),
        Part(heading="The link, measured first", tables=(links_table(race),) if race.links else ()),
        Part(heading="Do not believe blindly", points=doubts),
        Part(heading="Pictures", text=_without_energy(race) if pictures else "", pictures=tuple(pictures)),
        Part(heading="What must hold", tables=(checks_table(checks),)),
        *_contest_parts(race, rows),
        _law_part(race, rows),
        Part(heading="Who could not take part", tables=(missing,) if missing.rows else ()),
        Part(heading="Who took part, by what each says of itself", tables=(entrants_table(race.entrants),)),
        Part(heading="Quoted", tables=(quotes_table(), paper_table())),
        Part(heading="Estimates", points=estimates(race)),
        Part(heading="Where it ran, and what it was told", tables=(environment_table(race),)),
    ]
    return tuple(part for part in parts if part.text or part.points or part.pictures or part.tables or part.folded)


def _without_energy(race: Race) -> str:
    """Return the reason why there are no plots of energy; empty if there are some."""
    used = [run.energy for run in race.runs if run.energy is not None]
    if not used:
        return "Energy was not recorded, so there are no bars of it."
    if all(energy.read_joules is None for energy in used):
        return "Energy was not told apart by stage, so there are no bars of that."
    return ""


def _contest_parts(race: Race, rows: Sequence[Standing]) -> list[Part]:
    parts: list[Part] = []
    for contest in race.contests:
        own = [row for row in rows if row.contest == contest]
        runners = [row for row in own if row.entrant.family != "limit"]
        bounds = [row for row in own if row.entrant.family == "limit"]
        if own:
            parts.append(
                Part(
                    heading=contest.name,
                    text=f"{_told(contest)} {'' if parts else _READING}".strip(),
                    tables=(
                        *([contest_table(shown(own))] if runners else []),
                        *([limits_table(bounds)] if bounds else []),
                    ),
                    folded=(complete_table(runners),) if runners else (),
                )
            )
    return parts


def _told(contest: Contest) -> str:
    words = contest.words.rstrip(".")
    epochs = f"{contest.epochs} epoch{'s' if contest.epochs > 1 else ''}"
    return (
        f"{words[:1].upper()}{words[1:]}: {contest.corpus.text}, batches of {contest.batch}, {epochs}; "
        f"epochs are cut at {contest.limit_ns / 1e9:g} s."
    )


def _law_part(race: Race, rows: Sequence[Standing]) -> Part:
    fitted = [law for group in by_distance(race.contests) for law in fitted_laws(rows, group)]
    return Part(heading="Round trips", tables=(laws_table([*fitted, *published_laws()]),))
