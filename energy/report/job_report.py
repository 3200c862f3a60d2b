"""Reports of a job's energy for people.

Covers: the headline, the table of all epochs, remarks on the whole job; text and Markdown. Does not
cover: an epoch's tables (emlio.energy.report.epoch_report), the page
(emlio.energy.report.job_page).
"""

import shlex
from collections.abc import Iterable, Sequence

from emlio.energy.job.epoch_energy import DOMAINS, WHOLE_RUN, EpochEnergy, Role
from emlio.energy.job.job_energy import Job
from emlio.energy.report.epoch_report import epoch_headline, markdown_report, text_report
from emlio.energy.report.job_document import loader_settings
from emlio.energy.report.text_table import ABSENT, EnergyUnit, TextTable, energy_in_words, figure, joules, unit_of
from emlio.energy.values.domain import Method
from emlio.energy.values.total import sum_of

__all__ = ["epochs_table", "job_headline", "job_markdown", "job_sentences", "job_text"]

_MOST_IN_FULL = 4
"""With more epochs, a terminal shows only the last in full, and all of them in the table."""


def job_text(job: Job, *, in_full: bool = False) -> str:
    """Return the report for a terminal.

    Args:
        job: the job.
        in_full: whether all epochs are shown with all their tables, however many there are.
    """
    epochs = job.energies
    shown = epochs if in_full or len(epochs) <= _MOST_IN_FULL else epochs[-1:]
    parts = [job_headline(job), "\n".join(job_sentences(job))]
    if len(epochs) > 1:
        parts.append(epochs_table(job).text())
    if len(shown) < len(epochs):
        parts.append(f"details: the last of {len(epochs)}")
    return "\n\n".join(filter(None, parts)) + f"\n\n\n{text_report(shown)}"


def job_markdown(job: Job) -> str:
    """Return the report as Markdown."""
    parts = [f"## {job_headline(job)}", "\n".join(f"* {one}" for one in job_sentences(job))]
    if len(job.epochs) > 1:
        parts.append(epochs_table(job).markdown())
    return "\n\n".join([*filter(None, parts), markdown_report(job.energies)])


def job_headline(job: Job) -> str:
    """Return the whole job in one line. Impossible figures are left out."""
    epochs = job.energies
    seconds = figure(sum(one.duration_ns for one in epochs) / 1e9)
    what = "the whole run" if epochs[0].name == WHOLE_RUN else f"{len(epochs)} epoch{'s' * (len(epochs) > 1)}"
    nodes = f"{len(job.folders)} compute"
    stored = len({one.node for one in job.nodes if one.role is Role.STORAGE})
    nodes += f" and {stored} storage node{'s' * (stored > 1)}" if stored else f" node{'s' * (len(job.folders) > 1)}"
    said = f"{what} on {nodes}: {seconds} s"
    if any(one.impossible for one in epochs):
        return f"{said}; the figures cannot be right, see below"
    total, samples = sum_of(one.total for one in epochs), sum(one.samples for one in epochs)
    each = f", {joules(total, 1e6 * samples, unit=' J/sample', error=False)}" if samples else ""
    return f"{said}, {energy_in_words(total)}{each}"


def epochs_table(job: Job) -> TextTable:
    """Return a table with a row for each epoch and one for their mean.

    Incomplete epochs are not in the mean.
    """
    unit = unit_of(*(one.energy.total.energy_uj for one in job.epochs))
    header = (
        *("epoch", "seconds", "samples"),
        *(f"{domain.upper()} {unit.name}" for domain in DOMAINS),
        *(f"total {unit.name}", "mean W", "J/sample"),
    )
    rows = [(one.energy.title + ("" if one.whole else " *"), *_figures([one.energy], unit)) for one in job.epochs]
    whole = [one.energy for one in job.epochs if one.whole]
    if len(whole) > 1:
        rows.append((f"mean of {len(whole)}", *_figures(whole, unit)))
    return TextTable(title="epochs", header=header, rows=tuple(rows))


def _figures(epochs: Sequence[EpochEnergy], unit: EnergyUnit) -> tuple[str, ...]:
    """Return the cells of the epochs' mean."""
    many = len(epochs)
    duration_ns, samples = sum(one.duration_ns for one in epochs), sum(one.samples for one in epochs)
    total = sum_of(one.total for one in epochs)
    known = [sum_of(node.of(domain) for one in epochs for node in one.nodes) for domain in DOMAINS]
    return (
        figure(duration_ns / 1e9 / many),
        f"{round(samples / many):,}",
        *(
            joules(one, unit.microjoules * many, error=False, most_decimals=unit.most_decimals)
            for one in (*known, total)
        ),
        joules(total, duration_ns / 1e3, error=False),
        joules(total, 1e6 * samples, error=False) if samples else ABSENT,
    )


def job_sentences(job: Job) -> list[str]:
    """Return remarks that hold for all epochs."""
    note = job.note
    lines: list[str] = []
    if note is not None:
        ended = "has not ended" if note.status is None else f"ended with status {note.status}"
        lines.append(f"command: {shlex.join(note.command)}; it {ended}")
    settings = loader_settings(job)
    if settings:
        lines.append("loader: " + ", ".join(f"{name} {value}" for name, value in settings.items()))
    lines.extend(_whole(job))
    lines.extend(_estimates(job))
    if any(not one.whole for one in job.epochs):
        lines.append("*: left early, started in the middle, or not noted by all ranks; not in the mean")
    lines.extend(f"note: {one}" for one in job.notes)
    return lines


def _whole(job: Job) -> Iterable[str]:
    """Describe the whole command; it includes time before, between and after the epochs."""
    if job.whole is None:
        return
    epochs_ns = sum(one.energy.duration_ns for one in job.epochs)
    node = job.whole.nodes[0].node
    told = epoch_headline(job.whole).removeprefix("run: ")
    yield f"whole command on {node}, storage left out: {told}; epochs are {epochs_ns / job.whole.duration_ns:.0%} of its time"


def _estimates(job: Job) -> Iterable[str]:
    """Mark estimates, and name their models."""
    told = [
        f"{node.node}, {device.domain.upper()}: {device.note}"
        for node in job.nodes
        for device in node.devices
        if device.method is Method.ESTIMATED
    ]
    if told:
        yield "~: an estimate, not a measurement; for ratios on one machine, not between machines"
        yield from (f"model of {one}" for one in told)
