"""Output of a job's report in all formats, shared by several commands.

Covers: the files of a job's folder, the page, the plot. Does not cover: their content
(emlio.energy.report).
"""

import json
from collections.abc import Sequence
from pathlib import Path

from emlio.energy.job.job_energy import Job
from emlio.energy.report.job_document import job_document
from emlio.energy.report.job_page import job_page
from emlio.energy.report.job_report import job_text
from emlio.energy.report.job_traces import job_traces
from emlio.energy.report.power_plot import plot_power, power_svg
from emlio.energy.report.power_trace import PowerTrace
from emlio.errors import ConfigError

__all__ = ["document_text", "page_text", "write_all", "write_picture", "write_text"]

_NO_TRACE = "there is nothing to plot: no energy was recorded"


def document_text(job: Job) -> str:
    """Return the report as JSON."""
    return json.dumps(job_document(job), indent=2) + "\n"


def page_text(job: Job) -> str:
    """Return the report as HTML, with a plot if it can be drawn."""
    return _page(job, job_traces(job))


def _page(job: Job, traces: Sequence[PowerTrace]) -> str:
    if not traces:
        return job_page(job, "", without=_NO_TRACE)
    try:
        return job_page(job, power_svg(traces))
    except ConfigError as error:
        return job_page(job, "", without=str(error))


def write_picture(job: Job, path: Path) -> None:
    """Plot power over time; the file's suffix selects the format."""
    _draw(job_traces(job), path)


def _draw(traces: Sequence[PowerTrace], path: Path) -> None:
    if not traces:
        raise ConfigError(_NO_TRACE)
    plot_power(traces, path)


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: the report cannot be written: {error.strerror}") from error


def write_all(job: Job, folder: Path) -> str:
    """Write report.txt, report.json, report.html and power.png.

    Return why there is no plot, or an empty string.
    """
    traces = job_traces(job)
    write_text(folder / "report.txt", job_text(job, in_full=True) + "\n")
    write_text(folder / "report.json", document_text(job))
    write_text(folder / "report.html", _page(job, traces))
    try:
        _draw(traces, folder / "power.png")
    except ConfigError as error:
        return str(error)
    return ""
