"""The report of `emlio-bench mixtures`: tables, words, and the plot's place.

Covers: the contents of the report. Pure but for drawing. Does not cover: forms and files of a report
(emlio_bench.harness.page), the plot (emlio_bench.mixtures.plot).
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from emlio_bench.formats.outcome import FIRST_BATCH, FIRST_EPOCH, ON_DISK, RATE, Measure, epoch_seconds
from emlio_bench.harness.page import Part, Picture, text_page, write_report
from emlio_bench.harness.report import environment_table
from emlio_bench.harness.spread import Seen, spread, text
from emlio_bench.harness.table import Table
from emlio_bench.mixtures.exactness import Deviations
from emlio_bench.mixtures.outcome import MixturesResults
from emlio_bench.mixtures.plot import draw_mixtures
from emlio_bench.mixtures.subjects import OURS
from emlio_bench.race.outcome import Contest, Run

__all__ = ["TITLE", "mixtures_parts", "render_mixtures", "write_mixtures_report"]

TITLE: Final = "EMLIO: several datasets read as one, in given proportions"
_MEASURES: Final[tuple[Measure, ...]] = (FIRST_BATCH, RATE, ON_DISK)


def write_mixtures_report(results: MixturesResults, folder: Path) -> tuple[Path, ...]:
    """Write the report with its plot; return its files, the page first."""
    return write_report(TITLE, mixtures_parts(results, draw_mixtures(results)), results, folder)


def render_mixtures(results: MixturesResults) -> str:
    """Return the tables for a terminal."""
    return text_page(part for part in mixtures_parts(results) if part.tables)


def mixtures_parts(results: MixturesResults, pictures: Sequence[Picture] = ()) -> tuple[Part, ...]:
    """Return all parts in order.

    Args:
        results: results of the run.
        pictures: its plots.
    """
    missing = [entrant for entrant in results.entrants if entrant.missing is not None]
    ran = [entrant for entrant in results.entrants if entrant.missing is None]
    return (
        Part(text=_reading(results), pictures=tuple(pictures)),
        *(
            Part(
                heading=f"{contest.name[0].upper()}{contest.name[1:]}",
                text=f"{contest.words}.",
                tables=(_times(results, contest), _deviations(results, contest)),
            )
            for contest in results.contests
            if results.subjects(contest)
        ),
        Part(
            heading="The loaders",
            points=tuple(f"{one.subject} ({one.versions}): {one.words}" for one in ran),
        ),
        Part(
            heading="Systems that could not take part",
            points=tuple(f"{one.subject} {one.missing}" for one in missing),
        ),
        Part(heading="Runs that failed", points=tuple(_failures(results))),
        Part(heading="The machine", tables=(environment_table(results),)),
    )


def _reading(results: MixturesResults) -> str:
    return (
        "An epoch counts from before the loader's constructor, imports done, to its last batch; the loader's host has no files "
        "of an earlier run. Median (least..most) over rounds, in which all take turns; ratios are of the time per sample in a "
        "round. A deviation is the number of records of a dataset in a window or a batch, minus its weight times the samples "
        f"there. A window is {results.window:,} samples in a row as they were handed out; one begins at each sample. Batches "
        "are whole ones. A record came too early if it came again before all records of its dataset had come."
    )


def _times(results: MixturesResults, contest: Contest) -> Table:
    mix, subjects = results.mix(contest), results.subjects(contest)
    header = (
        "loader",
        FIRST_EPOCH.name,
        "EMLIO / it, per sample",
        *(measure.name for measure in _MEASURES),
        f"samples of {mix.samples:,}",
        "distinct records",
        "came too early",
    )
    rows: list[tuple[str, ...]] = []
    for name in subjects:
        runs, draws = results.of(contest, name), results.drawn(contest, name)
        rows.append(
            (
                name,
                _cell(FIRST_EPOCH, runs) if runs else "failed",
                _ratio(results, contest, name),
                *(_cell(measure, runs) for measure in _MEASURES),
                _counts(run.epochs[0].records for run in runs),
                _counts(sum(one.distinct) for one in draws),
                _counts(one.early for one in draws),
            )
        )
    return Table(header=header, rows=tuple(rows), ours=_ours(subjects))


def _deviations(results: MixturesResults, contest: Contest) -> Table:
    """Return the deviations of each dataset: a row for each loader and dataset."""
    mix = results.mix(contest)
    header = (
        "loader",
        "weight",
        f"in {results.window:,} samples: largest",
        "mean",
        f"in a batch of {contest.batch}: largest",
        "mean",
    )
    rows: list[tuple[str, ...]] = []
    names: list[str] = []
    for name in results.subjects(contest):
        windows, batches = results.windows(contest, name), results.batches(contest, name)
        for number, weight in enumerate(mix.weights):
            names.append(name)
            rows.append((name if not number else "", f"{weight:g}", *_two(windows, number), *_two(batches, number)))
    return Table(header=header, rows=tuple(rows), title="Deviations in records", names=2, ours=_ours(names))


def _two(counted: Sequence[Deviations], dataset: int) -> tuple[str, str]:
    """Return the largest and the mean deviation of a dataset, without their signs."""
    if not counted:
        return "-", "-"
    columns = [abs(one[:, dataset]) for one in counted]
    return text(spread([float(one.max()) for one in columns])), text(spread([float(one.mean()) for one in columns]))


def _ours(names: Sequence[str]) -> frozenset[int]:
    return frozenset(place for place, name in enumerate(names) if name == OURS)


def _failures(results: MixturesResults) -> Iterator[str]:
    for run in results.runs:
        if run.failure:
            yield f"{run.contest}, round {run.round + 1}: {run.subject}: {run.failure.splitlines()[0]}"


def _cell(measure: Measure, runs: Sequence[Run]) -> str:
    values = measure.of(runs)
    return text(spread(values) if values else None)


def _counts(values: Iterable[int]) -> str:
    found = list(values)
    return text(spread(found), lambda value: f"{value:,.0f}") if found else "-"


def _ratio(results: MixturesResults, contest: Contest, name: str) -> str:
    """Return the ratios of EMLIO's first epochs to a loader's, for the same number of samples, within rounds."""
    ours = {run.round: run for run in results.of(contest, OURS) if not run.cut}
    ratios: list[Seen] = []
    for run in results.of(contest, name) if name != OURS else ():
        if run.round in ours and run.epochs[0].records:
            value = _sample_seconds(ours[run.round]) / _sample_seconds(run)
            ratios.append(Seen(value=value, beyond="<" if run.cut else ""))
    return text(spread(ratios), lambda value: f"{value:.2f}") if ratios else "-"


def _sample_seconds(run: Run) -> float:
    return epoch_seconds(run) / run.epochs[0].records
