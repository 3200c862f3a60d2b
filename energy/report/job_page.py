"""A job's energy as one self-contained HTML page.

Covers: the page's parts, explanations of its terms. Does not cover: the tables' cells
(emlio.energy.report.epoch_report, emlio.energy.report.job_report), the plot
(emlio.energy.report.power_plot).
"""

from collections.abc import Iterable
from html import escape

from emlio.energy.job.epoch_energy import EpochEnergy
from emlio.energy.job.job_energy import Job
from emlio.energy.report.epoch_report import epoch_headline, epoch_sentences, epoch_tables
from emlio.energy.report.job_report import epochs_table, job_headline, job_sentences
from emlio.energy.report.text_table import TextTable

__all__ = ["WORDS", "job_page"]

WORDS = (
    ("measured", "an energy counter was read"),
    ("derived", "a power sensor was read and integrated over time"),
    ("estimated, ~", "computed by a model from how busy the processors were; only for ratios on one machine"),
    ("≥", "a lower bound: a part could not be counted, which the notes name"),
    ("-", "unknown, not 0"),
    ("idle", "power at rest x time; the power at rest was measured before the command, or comes from the model"),
    ("above", "energy beyond idle"),
    (
        "clock",
        (
            "uncertainty of the node's start and end of the epoch, because it has another clock; 'own' for the node that "
            "noted them"
        ),
    ),
    ("missed", "scheduled readings that were not made; no energy is lost by them"),
    (
        "blocked",
        "each moment belongs to one stage: train while the device computes, else preprocess while anything is "
        "decoded, else read. Its rows add up to the total",
    ),
    ("cpu-share", "idle energy by time, energy above it by processor time of each stage's threads"),
    ("ablation", "differences of three runs: one reads, one also decodes, one also trains"),
    (
        "storage J or kJ",
        "energy of the storage nodes during the epoch: all of it is shown with read, and is not part of the rows",
    ),
)
"""The terms used in a report, and their explanations."""

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 0 auto; padding: 1rem; max-width: 62rem; }
h1 { font-size: 1.4rem; line-height: 1.3; margin: 0.5rem 0 1rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 0.5rem; border-top: 1px solid #ddd; padding-top: 1rem; }
p, li, dd { overflow-wrap: anywhere; }
ul { padding-left: 1.2rem; }
.wide { overflow-x: auto; margin: 0.5rem 0 1rem; }
.wide svg { display: block; min-width: 44rem; width: 100%; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
caption { text-align: left; font-weight: 600; padding: 0.3rem 0; white-space: nowrap; }
th, td { padding: 0.25rem 0.6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #e5e5e5; }
th { border-bottom: 2px solid #bbb; font-weight: 600; }
th:first-child, td:first-child { position: sticky; left: 0; background: #fff; }
.word { text-align: left; }
tr.sum td { border-top: 2px solid #bbb; font-weight: 600; }
dt { font-weight: 600; } dd { margin: 0 0 0.5rem 1rem; }
.warning { background: #fdecea; border-left: 4px solid #c0392b; padding: 0.5rem 0.8rem; }
"""


def job_page(job: Job, picture: str, *, without: str = "") -> str:
    """Return the HTML, with the plot embedded.

    Args:
        job: the job.
        picture: an svg element; empty where there is none.
        without: why there is none.
    """
    headline = job_headline(job)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Energy: {escape(headline)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(headline)}</h1>",
        *_impossible(job.energies),
        _list(job_sentences(job)),
        f'<div class="wide">{picture}</div>' if picture else f"<p>{escape(without)}</p>",
        *([_table(epochs_table(job))] if len(job.epochs) > 1 else []),
    ]
    for epoch in job.energies:
        parts.append(f"<h2>{escape(epoch_headline(epoch))}</h2>")
        parts.extend(_table(table) for table in epoch_tables(epoch))
        parts.append(_list(epoch_sentences(epoch)))
    words = "".join(f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>" for word, meaning in WORDS)
    parts.append(f"<h2>What the words mean</h2><dl>{words}</dl></body></html>")
    return "\n".join(filter(None, parts)) + "\n"


def _impossible(epochs: Iterable[EpochEnergy]) -> list[str]:
    return [
        f'<p class="warning">{escape(epoch.title)}: {escape(str(one))}</p>'
        for epoch in epochs
        for one in epoch.impossible
    ]


def _list(lines: Iterable[str]) -> str:
    rows = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{rows}</ul>" if rows else ""


def _table(table: TextTable) -> str:
    def cell(kind: str, place: int, text: str) -> str:
        left = ' class="word"' if place < table.names else ""
        return f"<{kind}{left}>{escape(text)}</{kind}>"

    head = "".join(cell("th", place, text) for place, text in enumerate(table.header))
    rows = "".join(
        f"<tr{_kind(row)}>{''.join(cell('td', place, text) for place, text in enumerate(row))}</tr>"
        for row in table.rows
    )
    return f'<div class="wide"><table><caption>{escape(table.title)}</caption><tr>{head}</tr>{rows}</table></div>'


def _kind(row: tuple[str, ...]) -> str:
    return ' class="sum"' if row[0] in ("total", "all") or row[0].startswith("mean of") else ""
