"""`emlio-bench report` and `emlio-bench compare`, which read results of earlier runs.

Covers: both commands, for races and for all other benchmarks. Does not cover: the contents of a
race's report (emlio_bench.race.report.document), of another report (emlio_bench.harness.report).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emlio.errors import ConfigError
from emlio.settings import option
from emlio_bench.harness.comparison import Compared, compare, compared
from emlio_bench.harness.page import RESULTS, write_report
from emlio_bench.harness.parsers import path
from emlio_bench.harness.report import render, result_parts
from emlio_bench.harness.results import Results
from emlio_bench.race.outcome import Race, read_run
from emlio_bench.race.report.document import TITLE, race_parts
from emlio_bench.race.report.plots import draw_race
from emlio_bench.race.report.standing import race_figures
from emlio_bench.race.report.verdict import verdict
from emlio_bench.race.report.verdict_words import first_paragraph

__all__ = ["CompareSettings", "ReportSettings", "run_compare", "run_report", "write_race_report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings:
    """`emlio-bench report DIR`."""

    out: Path | None = option(
        None,
        "write the report into this folder (default: DIR, or one named after the file)",
        parse=path,
        metavar="DIR",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings:
    """`emlio-bench compare A B`, which has no options."""


def run_report(paths: Sequence[Path], settings: ReportSettings) -> str:
    """Write the report of a run; return its first paragraph, or all of it, and its location."""
    (place,) = paths
    results = read_run(place)
    beside = place if place.is_dir() else place.parent if place.name == RESULTS else place.with_suffix("")
    folder = settings.out or beside
    if isinstance(results, Race):
        said, written = first_paragraph(results, verdict(results)), write_race_report(results, folder)
    else:
        said = render(results)
        written = write_report(f"EMLIO: {results.benchmark}", result_parts(results), results, folder)
    names = ", ".join(file.name for file in written[:3])
    return f"{said}\n\n{folder}: {names} and {len(written) - 3} pictures"


def write_race_report(race: Race, folder: Path) -> tuple[Path, ...]:
    """Write the report of a race; return its files, the page first.

    Raises:
        ConfigError: the files cannot be written.
    """
    return write_report(TITLE, race_parts(race, draw_race(race)), race, folder)


def run_compare(paths: Sequence[Path], settings: CompareSettings) -> str:
    """Return the table of two runs."""
    first, second = map(read_run, paths)
    if isinstance(first, Race) != isinstance(second, Race):
        raise ConfigError(f"a race may be compared with a race only: {paths[0]} and {paths[1]} are of two kinds")
    return compare(first, second, _figures)


def _figures(results: Results) -> list[Compared]:
    return race_figures(results) if isinstance(results, Race) else compared(results)
