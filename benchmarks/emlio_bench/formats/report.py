"""The report of `emlio-bench formats`: tables, words, and the plot's place.

Covers: the contents of the report. Pure but for drawing. Does not cover: forms and files of a
report (emlio_bench.harness.page), the plot (emlio_bench.formats.plot).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from emlio_bench.formats.contests import pairs
from emlio_bench.formats.outcome import (
    BESIDE,
    CPU_BOTH,
    FIRST_BATCH,
    FIRST_EPOCH,
    ON_DISK,
    RATE,
    FormatsResults,
    Measure,
    epoch_seconds,
)
from emlio_bench.formats.plot import draw_formats
from emlio_bench.harness.page import Part, Picture, text_page, write_report
from emlio_bench.harness.report import environment_table
from emlio_bench.harness.spread import Seen, Spread, number, spread, text
from emlio_bench.harness.table import Table
from emlio_bench.race.outcome import Contest, Run
from emlio_bench.race.records.stored_forms import PICTURE_FORMS, TOKEN_FORMS

__all__ = ["TITLE", "formats_parts", "render_formats", "write_formats_report"]

TITLE: Final = "EMLIO: formats served without conversion"
_FIRSTS: Final = (PICTURE_FORMS[0].name, TOKEN_FORMS[0].name)
_READING: Final = (
    "An epoch counts from before the loader's constructor, imports done, to its last batch; the loader's host meets the daemon "
    "for the first time. Median (least..most) over rounds, in which all take turns; ratios are of runs in the same round. GB are "
    "10^9 bytes of payload; CPU seconds are of all processes of a side, from before the constructor to the loader's end. In "
    "every run of EMLIO each record came exactly once."
)
_BESIDE: Final = (
    "Each pair reads the same files: WebDataset and Hugging Face datasets over HTTP, MosaicML Streaming from an S3 server, "
    "PyTorch's DataLoader over sshfs, EMLIO from its daemon."
)


def write_formats_report(results: FormatsResults, folder: Path) -> tuple[Path, ...]:
    """Write the report with its plot; return its files, the page first."""
    return write_report(TITLE, formats_parts(results, draw_formats(results)), results, folder)


def render_formats(results: FormatsResults) -> str:
    """Return the tables for a terminal."""
    return text_page(part for part in formats_parts(results) if part.tables)


def formats_parts(results: FormatsResults, pictures: Sequence[Picture] = ()) -> tuple[Part, ...]:
    """Return all parts in order.

    Args:
        results: results of the run.
        pictures: its plots.
    """
    missing = [entrant for entrant in results.entrants if entrant.missing is not None]
    return (
        Part(text=_READING, pictures=tuple(pictures)),
        *(
            Part(
                heading=f"{contest.name[0].upper()}{contest.name[1:]}",
                text=contest.words if contest.name != BESIDE else f"{contest.words}. {_BESIDE}",
                tables=(table,),
            )
            for contest in results.contests
            if (table := _table(results, contest)) is not None
        ),
        Part(
            heading="The first start of a daemon",
            text=_STARTS if results.starts else "",
            tables=_starts_tables(results),
        ),
        Part(
            heading="Systems that could not take part",
            points=tuple(f"{one.subject} {one.missing}" for one in missing),
        ),
        Part(heading="The machine", tables=(environment_table(results),)),
    )


_STARTS: Final = (
    "Seconds from the daemon's process to the moment when it accepts ranks. The first start indexes the folder, which is in the "
    "page cache; no run includes it."
)


def _starts_tables(results: FormatsResults) -> tuple[Table, ...]:
    rows = tuple((one.subject, number(one.first_s), number(one.later_s)) for one in results.starts)
    return (Table(header=("format", "first start, s", "next start, s"), rows=rows),) if rows else ()


def _table(results: FormatsResults, contest: Contest) -> Table | None:
    beside = contest.name == BESIDE
    subjects = results.subjects(contest)
    measures: tuple[Measure, ...] = (FIRST_BATCH, RATE, *CPU_BOTH, *([ON_DISK] if beside else []))
    first = next((name for name in subjects if name in _FIRSTS), None)
    against: Callable[[str], str | None] = _other_of if beside else lambda name: first if name != first else None
    header = (
        "format" if not beside else "loader",
        FIRST_EPOCH.name,
        "EMLIO / it" if beside else f"/ {first}",
        *(measure.name for measure in measures),
        "each record once",
    )
    rows = tuple(
        (
            name,
            _cell(FIRST_EPOCH, results.of(contest, name)),
            text(_ratio(results, contest, name, against(name)), _ratio_number),
            *(_cell(measure, results.of(contest, name)) for measure in measures),
            _exactness(results, contest, name),
        )
        for name in subjects
    )
    ours = frozenset(place for place, name in enumerate(subjects) if name.startswith("emlio"))
    return Table(header=header, rows=rows, ours=ours) if rows else None


def _other_of(name: str) -> str | None:
    """Return EMLIO's subject on the folder of another system; None for EMLIO's own."""
    return next((ours.name for other, ours in pairs(Path()) if other.name == name), None)


def _ratio(results: FormatsResults, contest: Contest, name: str, other: str | None) -> Spread | None:
    """Return the ratios of first epochs within rounds: of a format to the first one, or of EMLIO to a loader."""
    if other is None:
        return None
    own, others = ({run.round: run for run in results.of(contest, one)} for one in (name, other))
    both = [(own[place], others[place]) for place in own if place in others]
    if contest.name == BESIDE:
        both = [(ours, it) for it, ours in both]
    ratios = [seen for upper, lower in both if (seen := _over(upper, lower)) is not None]
    return spread(ratios) if ratios else None


def _over(upper: Run, lower: Run) -> Seen | None:
    """Return the ratio of two first epochs: a bound if one of them was cut, None if both were."""
    if upper.cut and lower.cut:
        return None
    value = epoch_seconds(upper) / epoch_seconds(lower)
    return Seen(value=value, beyond=">" if upper.cut else "<" if lower.cut else "")


def _ratio_number(value: float) -> str:
    return f"{value:.2f}"


def _cell(measure: Measure, runs: Sequence[Run]) -> str:
    values = measure.of(runs)
    return text(spread(values) if values else None)


def _exactness(results: FormatsResults, contest: Contest, name: str) -> str:
    failures = [
        run.failure for run in results.runs if run.failure and (run.contest, run.subject) == (contest.name, name)
    ]
    runs = results.of(contest, name)
    if failures or not runs:
        return f"failed: {failures[0].splitlines()[0]}" if failures else "-"
    whole = [run.epochs[0] for run in runs if not run.cut]
    if not whole:
        return "cut"
    wrong = [epoch for epoch in whole if not epoch.is_exact(contest.corpus)]
    return "yes" if not wrong else f"no: {len(wrong)} of {len(whole)} runs"
