"""`emlio-bench report` and `emlio-bench compare`, which read results of earlier runs.

Covers: detecting the kind of results at a path, running both commands. Does not cover: their texts
(emlio_bench.race.report_folder, emlio_bench.race.comparison).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from emlio.errors import ConfigError
from emlio.settings import option
from emlio_bench.harness.parsers import path
from emlio_bench.harness.results import Results, read_results
from emlio_bench.race.comparison import compare_races, compare_results
from emlio_bench.race.folder import RaceFolder
from emlio_bench.race.outcome import SCHEMA, Race
from emlio_bench.race.report_folder import write_report
from emlio_bench.race.verdict import verdict
from emlio_bench.race.verdict_words import first_paragraph

__all__ = ["CompareSettings", "ReportSettings", "read_run", "run_compare", "run_report"]


class _Kind(msgspec.Struct, frozen=True):
    """The part of a file that tells which kind of results it holds."""

    contests: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings:
    """`emlio-bench report DIR`."""

    out: Path | None = option(None, "write the report into this folder (default: DIR)", parse=path, metavar="DIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings:
    """`emlio-bench compare A B`, which has no options."""


def run_report(paths: Sequence[Path], settings: ReportSettings) -> str:
    """Write the report of a race; return its first paragraph and its location."""
    (place,) = paths
    race = read_run(place)
    if not isinstance(race, Race):
        raise ConfigError(f"a report is of a race: {place} holds results of another benchmark")
    folder = settings.out or (place if place.is_dir() else place.parent)
    written = write_report(race, folder)
    names = ", ".join(file.name for file in written[:3])
    return f"{first_paragraph(race, verdict(race))}\n\n{folder}: {names} and {len(written) - 3} pictures"


def run_compare(paths: Sequence[Path], settings: CompareSettings) -> str:
    """Return the table of two runs."""
    first, second = map(read_run, paths)
    if isinstance(first, Race) and isinstance(second, Race):
        return compare_races(first, second)
    if isinstance(first, Results) and isinstance(second, Results):
        return compare_results(first, second)
    raise ConfigError(f"a race may be compared with a race only: {paths[0]} and {paths[1]} are of two kinds")


def read_run(place: Path) -> Race | Results:
    """Read a race's folder, a race's results as one file, or results of another benchmark.

    Raises:
        ConfigError: the path holds no results.
    """
    if place.is_dir():
        race = RaceFolder(place).read()
        if race is None:
            raise ConfigError(f"a race's folder must hold race.json, {place} does not")
        return race
    try:
        text = place.read_bytes()
        if msgspec.json.decode(text, type=_Kind).contests is not None:
            return msgspec.json.decode(text, type=Race)
    except OSError as error:
        raise ConfigError(f"results must be readable: {place}: {error.strerror or error}") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"results must be JSON of schema {SCHEMA}: {place}: {error}") from error
    return read_results(place)
