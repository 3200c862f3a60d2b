"""A job's energy as one self-contained HTML page with one plot."""

from collections.abc import Iterable
from html import escape

from emlio.energy.job.document import Report
from emlio.energy.job.job_energy import Job
from emlio.energy.report.plot import power_svg
from emlio.energy.report.power import job_traces
from emlio.energy.report.table import TextTable
from emlio.energy.report.text import (
    epoch_headline,
    epoch_sentences,
    epoch_tables,
    epochs_table,
    job_headline,
    job_sentences,
    meanings,
)
from emlio.errors import ConfigError

__all__ = ["WORDS", "page", "page_of"]

WORDS = (
    "measured: an energy counter was read",
    "derived: a power sensor was read and integrated over time",
    "estimated, ~: computed by a model from how busy the processors were; only for ratios on one machine",
    "≥: a lower bound, of which a part could not be counted",
    "-: unknown, not 0",
    "clock: uncertainty of a node's start and end of the epoch, because it has another clock",
    "missed: scheduled readings that were not made; no energy is lost by them",
    "storage: energy of the storage nodes during the epoch, all of it with read; not part of the rows",
)
"""The terms used in a report, and their explanations."""

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 0 auto; padding: 1rem; max-width: 62rem; }
h1 { font-size: 1.4rem; line-height: 1.3; margin: 0.5rem 0 1rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 0.5rem; border-top: 1px solid #ddd; padding-top: 1rem; }
p, li { overflow-wrap: anywhere; }
ul { padding-left: 1.2rem; }
.wide { overflow-x: auto; margin: 0.5rem 0 1rem; }
.wide svg { display: block; min-width: 44rem; width: 100%; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
caption { text-align: left; font-weight: 600; padding: 0.3rem 0; white-space: nowrap; }
th, td { padding: 0.25rem 0.6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #e5e5e5; }
th:first-child, td:first-child { position: sticky; left: 0; background: #fff; }
.word { text-align: left; }
.warning { background: #fdecea; border-left: 4px solid #c0392b; padding: 0.5rem 0.8rem; }
"""


def page(report: Report, picture: str, *, without: str = "") -> str:
    """Return the HTML, with the plot embedded.

    Args:
        report: of the job.
        picture: an svg element; empty where there is none.
        without: why there is none.
    """
    headline = escape(job_headline(report))
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Energy: {headline}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{headline}</h1>",
    ]
    for epoch in report.epochs:
        parts.extend(f'<p class="warning">{escape(f"{epoch.title}: {one}")}</p>' for one in epoch.impossible)
    parts.append(_list(job_sentences(report)))
    parts.append(f'<div class="wide">{picture}</div>' if picture else f"<p>{escape(without)}</p>")
    if len(report.epochs) > 1:
        parts.append(_table(epochs_table(report)))
    for epoch in report.epochs:
        parts.append(f"<h2>{escape(epoch_headline(epoch))}</h2>")
        parts.extend(_table(table) for table in epoch_tables(epoch))
        parts.append(_list(epoch_sentences(epoch)))
    parts.append(f"<h2>What the words mean</h2>{_list((*WORDS, *meanings(report.epochs)))}</body></html>")
    return "\n".join(filter(None, parts)) + "\n"


def _list(lines: Iterable[str]) -> str:
    rows = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{rows}</ul>" if rows else ""


def _table(table: TextTable) -> str:
    def row(kind: str, cells: tuple[str, ...]) -> str:
        marks = [' class="word"' if place < table.names else "" for place in range(len(cells))]
        return "".join(f"<{kind}{mark}>{escape(text)}</{kind}>" for mark, text in zip(marks, cells, strict=True))

    rows = "".join(f"<tr>{row('td', one)}</tr>" for one in table.rows)
    caption = f"<caption>{escape(table.title)}</caption>"
    return f'<div class="wide"><table>{caption}<tr>{row("th", table.header)}</tr>{rows}</table></div>'


def page_of(job: Job) -> str:
    """Return the page of a job, with a plot if it can be drawn."""
    try:
        return page(job.report, power_svg(job_traces(job)))
    except ConfigError as error:
        return page(job.report, "", without=str(error))
