"""The report of a race as parts.

Covers: the contents of the report and their order. Pure. Does not cover: the tables' cells
(emlio_bench.race.report.tables), the forms of a report (emlio_bench.harness.page), drawing
(emlio_bench.race.report.plots).
"""

from collections.abc import Sequence

from emlio_bench.harness.page import Part, Picture
from emlio_bench.harness.report import environment_table
from emlio_bench.race.outcome import Contest, Race
from emlio_bench.race.report.doubts import estimates, race_doubts
from emlio_bench.race.report.energy_table import energy_table
from emlio_bench.race.report.round_trips import fitted_laws, published_laws
from emlio_bench.race.report.standing import Standing, by_distance, entrants_of, shown, standings
from emlio_bench.race.report.tables import (
    checks_table,
    complete_table,
    contest_table,
    entrants_table,
    laws_table,
    limits_table,
    links_table,
    missing_table,
    paper_table,
    quotes_table,
)
from emlio_bench.race.report.verdict import verdict
from emlio_bench.race.report.verdict_words import first_paragraph

__all__ = ["TITLE", "race_parts"]

TITLE = "EMLIO beside others, over a long link on one machine"

_READING = (
    "Epochs count from before a loader's constructor, imports done, to the last batch. Figures are medians over rounds, in "
    "which all take their turn. '>' and '<' mark runs that were cut at their contest's limit: the truth lies beyond. '-' is "
    "not known. Ratios are of neighbours in the same round."
)


def race_parts(race: Race, pictures: Sequence[Picture] = ()) -> tuple[Part, ...]:
    """Return all parts in order.

    Args:
        race: the race as far as it has run.
        pictures: plots of the race.
    """
    rows, checks = standings(race), verdict(race)
    doubts, missing = race_doubts(race), missing_table(entrants_of(race))
    return (
        Part(text=first_paragraph(race, checks)),
        Part(heading="The link, measured first", tables=(links_table(race),) if race.links else ()),
        Part(heading="Caveats", points=doubts),
        Part(heading="Pictures", text=_without_energy(race) if pictures else "", pictures=tuple(pictures)),
        Part(heading="Goals", tables=(checks_table(checks),)),
        *_contest_parts(race, rows),
        _law_part(race, rows),
        Part(heading="Systems that could not run", tables=(missing,) if missing.rows else ()),
        Part(heading="Systems, by their own description", tables=(entrants_table(entrants_of(race)),)),
        Part(heading="Quoted", tables=(quotes_table(), paper_table())),
        Part(heading="Estimates", points=estimates(race)),
        Part(heading="Machine and settings", tables=(environment_table(race),)),
    )


def _without_energy(race: Race) -> str:
    """Return the reason why there are no plots of energy; empty if there are some."""
    used = [run.energy for run in race.runs if run.energy is not None]
    if not used:
        why = f" ({race.no_energy})" if race.no_energy else ""
        return f"Energy was not recorded{why}, so there are no bars of it."
    if all(energy.read_joules is None for energy in used):
        return "Energy was not divided by stage, so there are no bars of that."
    return ""


def _contest_parts(race: Race, rows: Sequence[Standing]) -> list[Part]:
    parts: list[Part] = []
    for contest in race.contests:
        own = [row for row in rows if row.contest == contest]
        runners = [row for row in own if row.entrant.family != "limit"]
        bounds = [row for row in own if row.entrant.family == "limit"]
        if own:
            energy = energy_table(shown(runners)) if runners else None
            parts.append(
                Part(
                    heading=contest.name,
                    text=f"{_told(contest)} {'' if parts else _READING}".strip(),
                    tables=(
                        *([contest_table(shown(own))] if runners else []),
                        *([energy] if energy is not None and energy.rows else []),
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
