"""A job's report in all its forms, shared by the commands that make one.

Covers: the files of a job's folder, the page, the picture. Does not cover: what stands in them (emlio.energy.job_report and its
siblings).
"""

import json
from collections.abc import Sequence
from pathlib import Path

from emlio.energy.job import Job
from emlio.energy.job_document import job_document
from emlio.energy.job_page import job_page
from emlio.energy.job_report import job_text
from emlio.energy.job_traces import job_traces
from emlio.energy.plot import plot_power, power_svg
from emlio.energy.power_trace import PowerTrace
from emlio.errors import ConfigError

__all__ = ["document_text", "page_text", "write_all", "write_picture", "write_text"]

_NO_TRACE = "there is no picture, since nothing was recorded"


def document_text(job: Job) -> str:
    """JSON."""
    return json.dumps(job_document(job), indent=2) + "\n"


def page_text(job: Job) -> str:
    """HTML, with the picture where it can be drawn."""
    return _page(job, job_traces(job))


def _page(job: Job, traces: Sequence[PowerTrace]) -> str:
    if not traces:
        return job_page(job, "", without=_NO_TRACE)
    try:
        return job_page(job, power_svg(traces))
    except ConfigError as error:
        return job_page(job, "", without=str(error))


def write_picture(job: Job, path: Path) -> None:
    """Draw power over time; the file's name says which kind."""
    _draw(job_traces(job), path)


def _draw(traces: Sequence[PowerTrace], path: Path) -> None:
    if not traces:
        raise ConfigError(_NO_TRACE)
    plot_power(traces, path)


def write_text(path: Path, text: str) -> None:
    """Into a file."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"a report must go where files can be written: {path}: {error.strerror}") from error


def write_all(job: Job, folder: Path) -> str:
    """report.txt, report.json, report.html and power.png; returns why there is no picture, or nothing."""
    traces = job_traces(job)
    write_text(folder / "report.txt", job_text(job, in_full=True) + "\n")
    write_text(folder / "report.json", document_text(job))
    write_text(folder / "report.html", _page(job, traces))
    try:
        _draw(traces, folder / "power.png")
    except ConfigError as error:
        return str(error)
    return ""
