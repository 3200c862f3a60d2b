"""The report of a race on disk: Markdown, a page, plots, and all results as one file.

Covers: the list of files. Does not cover: their contents (emlio_bench.race.report,
emlio_bench.race.page), the raw runs (emlio_bench.race.folder).
"""

from pathlib import Path
from typing import Final

import msgspec

from emlio.errors import ConfigError
from emlio_bench.harness.plot import check_plotting
from emlio_bench.race.document import Picture
from emlio_bench.race.outcome import Race
from emlio_bench.race.page import race_page
from emlio_bench.race.plots import draw_race
from emlio_bench.race.report import render_race

__all__ = ["PAGE", "REPORT", "RESULTS", "write_report"]

PAGE: Final = "report.html"
REPORT: Final = "report.md"
RESULTS: Final = "results.json"


def write_report(race: Race, folder: Path) -> tuple[Path, ...]:
    """Write all files and return their paths, the page first. Without matplotlib, omit plots.

    Raises:
        ConfigError: the files cannot be written.
    """
    pictures, without = _pictures(race)
    texts = [
        (PAGE, race_page(race, pictures, without=without).encode()),
        (REPORT, render_race(race, pictures).encode()),
        (RESULTS, msgspec.json.format(msgspec.json.encode(race), indent=1) + b"\n"),
    ]
    for picture in pictures:
        texts += [(f"{picture.name}.svg", f"{picture.wide}\n".encode()), (f"{picture.name}.png", picture.png)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts:
            (folder / name).write_bytes(text)
    except OSError as error:
        raise ConfigError(
            f"a report must go where files can be written: {folder}: {error.strerror or error}"
        ) from error
    return tuple(folder / name for name, _ in texts)


def _pictures(race: Race) -> tuple[tuple[Picture, ...], str]:
    try:
        check_plotting()
    except ConfigError as error:
        return (), f"There are no pictures: {error}"
    return draw_race(race), ""
