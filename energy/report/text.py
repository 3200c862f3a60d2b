"""The report of a job for people: its headline, tables and remarks."""

import shlex
from collections.abc import Sequence

from emlio.energy.job.document import Report
from emlio.energy.job.epoch_energy import DOMAINS, EpochEnergy, NodeEnergy, Role, StageRow
from emlio.energy.job.stages import View
from emlio.energy.report.table import (
    ABSENT,
    EnergyUnit,
    TextTable,
    energy_in_words,
    error_of,
    figure,
    in_words,
    marked,
    unit_of,
)
from emlio.energy.values.device import Domain, Method
from emlio.energy.values.plausibility import Verdict
from emlio.energy.values.spans import Stage
from emlio.energy.values.total import Total, sum_of
from emlio.units import format_duration

__all__ = [
    "epoch_headline",
    "epoch_sentences",
    "epoch_tables",
    "epochs_table",
    "job_headline",
    "job_sentences",
    "job_text",
    "meanings",
]

_MOST_IN_FULL = 4
"""With more epochs, a terminal shows only the last in full, and all of them in the table."""

_MEANS = {
    View.BLOCKED: "by what the loop waited for: train while the device computes, else preprocess while anything is "
    "decoded, else read",
    View.CPU_SHARE: "idle energy by time, energy above it by processor time; GPUs as in blocked",
}
_SHARED = "in compute"
"""Shown where a daemon runs on a training node: its energy is part of that node's."""


# ---- the job --------------------------------------------------------------------------------------------------------


def job_text(report: Report, *, in_full: bool = False) -> str:
    """Return the report for a terminal.

    Args:
        report: of the job.
        in_full: whether all epochs are shown with all their tables, however many there are.
    """
    epochs = report.epochs
    shown = epochs if in_full or len(epochs) <= _MOST_IN_FULL else epochs[-1:]
    parts = [job_headline(report), "\n".join(job_sentences(report))]
    if len(epochs) > 1:
        parts.append(epochs_table(report).text())
    if len(shown) < len(epochs):
        parts.append(f"details: the last of {len(epochs)}")
    texts = [
        "\n\n".join(
            [epoch_headline(one), *(table.text() for table in epoch_tables(one)), "\n".join(epoch_sentences(one))]
        )
        for one in shown
    ]
    return "\n\n".join(filter(None, parts)) + "\n\n\n" + "\n\n\n".join([*texts, "\n".join(meanings(shown))])


def meanings(epochs: Sequence[EpochEnergy]) -> list[str]:
    """Explain the terms used in the tables, once for all epochs."""
    views = {view for epoch in epochs for node in epoch.nodes for view in node.stages}
    return [
        "idle: power at rest x time; above: energy beyond that",
        *(f"{view}: {_MEANS[view]}" for view in View if view in views),
    ]


def job_headline(report: Report) -> str:
    """Return the whole job in one line. Impossible figures are left out."""
    epochs = report.epochs
    seconds = figure(sum(one.seconds for one in epochs))
    what = "the whole run" if epochs[0].epoch is None else f"{len(epochs)} epoch{'s' * (len(epochs) > 1)}"
    compute, stored = len(report.nodes(Role.COMPUTE)), len(report.nodes(Role.STORAGE))
    nodes = f"{compute} compute"
    nodes += f" and {stored} storage node{'s' * (stored > 1)}" if stored else f" node{'s' * (compute > 1)}"
    said = f"{what} on {nodes}: {seconds} s"
    if any(one.impossible for one in epochs):
        return f"{said}; the figures cannot be right, see below"
    total, samples = sum_of(one.total for one in epochs), sum(one.samples for one in epochs)
    return f"{said}, {in_words(total)}{f', {_each(total, samples)}' if samples else ''}"


def _each(total: Total, samples: int) -> str:
    return ABSENT if total.joules is None else f"{marked(total, samples)} J/sample"


def epochs_table(report: Report) -> TextTable:
    """Return a table with a row for each epoch and one for their mean.

    Incomplete epochs are not in the mean.
    """
    unit = unit_of(one.total for one in report.epochs)
    header = (
        *("epoch", "seconds", "samples"),
        *(f"{domain.upper()} {unit.name}" for domain in DOMAINS),
        *(f"total {unit.name}", "mean W", "J/sample"),
    )
    whole = report.whole
    rows = [(one.title + ("" if one in whole else " *"), *_mean([one], unit)) for one in report.epochs]
    if len(whole) > 1:
        rows.append((f"mean of {len(whole)}", *_mean(whole, unit)))
    return TextTable(title="epochs", header=header, rows=tuple(rows))


def _mean(epochs: Sequence[EpochEnergy], unit: EnergyUnit) -> tuple[str, ...]:
    """Return the cells of the epochs' mean."""
    many = len(epochs)
    seconds, samples = sum(one.seconds for one in epochs), sum(one.samples for one in epochs)
    total = sum_of(one.total for one in epochs)
    known = [sum_of(node.domains[domain] for one in epochs for node in one.nodes) for domain in DOMAINS]
    return (
        figure(seconds / many),
        f"{round(samples / many):,}",
        *(marked(one, unit.joules * many, unit.most_decimals) for one in (*known, total)),
        marked(total, seconds),
        marked(total, samples) if samples else ABSENT,
    )


def job_sentences(report: Report) -> list[str]:
    """Return remarks that hold for all epochs."""
    job = report.job
    lines: list[str] = []
    if job.command:
        ended = "has not ended" if job.exit_status is None else f"ended with status {job.exit_status}"
        lines.append(f"command: {shlex.join(job.command)}; it {ended}")
    if job.settings:
        lines.append("loader: " + ", ".join(f"{name} {value}" for name, value in job.settings.items()))
    if job.whole is not None:
        # It includes time before, between and after the epochs.
        part = sum(one.seconds for one in report.epochs) / job.whole.seconds
        told = epoch_headline(job.whole).removeprefix(f"{job.whole.title}: ")
        lines.append(
            f"whole command on {job.whole.nodes[0].node}, storage left out: {told}; epochs are {part:.0%} of its time"
        )
    models = [
        f"model of {node.node}, {device.domain.upper()}: {device.note}"
        for node in job.nodes
        for device in node.devices
        if device.method is Method.ESTIMATED
    ]
    if models:
        lines.append("~: an estimate, not a measurement; for ratios on one machine, not between machines")
        lines.extend(models)
    if len(report.whole) < len(report.epochs):
        lines.append("*: left early, started in the middle, or not noted by all ranks; not in the mean")
    lines.extend(f"note: {one}" for one in job.notes)
    return lines


# ---- an epoch -------------------------------------------------------------------------------------------------------


def epoch_headline(epoch: EpochEnergy) -> str:
    """Return the whole epoch in one line. Impossible figures are left out."""
    whole = f"{epoch.title}: {figure(epoch.seconds)} s"
    if epoch.epoch is not None:
        whole += f", {epoch.samples:,} samples"
    if epoch.impossible:
        return f"{whole}; the figures cannot be right, see below"
    whole += f", {in_words(epoch.total)}"
    if epoch.epoch is None:
        return whole
    return f"{whole}, {_each(epoch.total, epoch.samples) + error_of(epoch.total) if epoch.samples else ABSENT}"


def epoch_tables(epoch: EpochEnergy) -> list[TextTable]:
    """Return the table of nodes, and tables of stages in each available view."""
    compute = epoch.with_role(Role.COMPUTE)
    unit = unit_of([epoch.total, *(node.total for node in epoch.nodes)])
    tables = [_nodes_table(epoch, unit)]
    names = compute[0].node if len(compute) == 1 else f"{len(compute)} compute nodes, their seconds added"
    for view in View:
        if view in epoch.stages:
            tables.append(_stages_table(f"stages of {names}: {view}", epoch.stages[view], unit, epoch.shared))
        alone = [node for node in compute if view in node.stages] if len(compute) > 1 else []
        tables.extend(_stages_table(f"stages of {node.node}: {view}", node.stages[view], unit) for node in alone)
    return tables


def _nodes_table(epoch: EpochEnergy, unit: EnergyUnit) -> TextTable:
    header = (
        *("node", "role", "method", "seconds"),
        *(f"{domain.upper()} {unit.name}" for domain in DOMAINS),
        *(f"total {unit.name}", "mean W", f"idle {unit.name}", f"above {unit.name}", "clock", "missed"),
    )
    rows = [_node_row(node, unit) for node in epoch.nodes]
    if len(epoch.nodes) > 1:
        domains = [unit.sum(sum_of(node.domains[domain] for node in epoch.nodes)) for domain in DOMAINS]
        idle = [node.idle_joules for node in epoch.nodes if node.idle_joules is not None]
        rest = sum(idle) if len(idle) == len(epoch.nodes) else None
        above = None if epoch.total.joules is None or rest is None else epoch.total.joules - rest
        rows.append(
            (
                *("all", ABSENT, _method(epoch.total), figure(epoch.seconds), *domains, unit.sum(epoch.total)),
                *(marked(epoch.total, epoch.seconds), unit.cell(rest, epoch.total), unit.cell(above, epoch.total)),
                *(ABSENT, str(sum(node.missed_ticks for node in epoch.nodes))),
            )
        )
    return TextTable(title="nodes", header=header, rows=tuple(rows), names=3)


def _node_row(node: NodeEnergy, unit: EnergyUnit) -> tuple[str, ...]:
    clock = ABSENT if node.role is Role.STORAGE else "own"
    if node.clock_error_ns is not None:
        clock = f"±{format_duration(node.clock_error_ns)}"
    return (
        *(node.node, node.role, _method(node.total), figure(node.seconds)),
        *(unit.sum(node.domains[domain]) for domain in DOMAINS),
        *(unit.sum(node.total), marked(node.total, node.seconds)),
        *(unit.cell(node.idle_joules, node.total), unit.cell(node.above_idle_joules, node.total)),
        *(clock, str(node.missed_ticks)),
    )


def _stages_table(title: str, rows: Sequence[StageRow], unit: EnergyUnit, shared: Sequence[str] = ()) -> TextTable:
    header = (
        *("stage", "seconds", "time"),
        *(f"{domain.upper()} {unit.name}" for domain in DOMAINS),
        *(f"total {unit.name}", "energy", f"idle {unit.name}", f"above {unit.name}", f"storage {unit.name}"),
    )
    return TextTable(title=title, header=header, rows=tuple(_stage_row(row, rows[-1], unit, shared) for row in rows))


def _stage_row(row: StageRow, whole: StageRow, unit: EnergyUnit, shared: Sequence[str]) -> tuple[str, ...]:
    joules, all_joules = row.total.joules, whole.total.joules
    stored = ABSENT if row.storage is None else unit.sum(row.storage)
    return (
        *(row.stage, figure(row.seconds), f"{row.seconds / whole.seconds:.1%}"),
        *(unit.sum(row.domains[domain]) for domain in DOMAINS),
        *(unit.sum(row.total), f"{joules / all_joules:.1%}" if joules is not None and all_joules else ABSENT),
        *(unit.cell(row.idle_joules, row.total), unit.cell(row.above_idle_joules, row.total)),
        _SHARED if row.storage is None and row.stage == Stage.READ and shared else stored,
    )


def epoch_sentences(epoch: EpochEnergy) -> list[str]:
    """Return remarks that do not fit into the tables."""
    judged = [one for node in epoch.nodes for one in node.plausibility]
    lines = [str(one) for one in sorted(judged, key=lambda one: one.verdict is not Verdict.IMPOSSIBLE)]
    sums = [(node.node, node.total) for node in epoch.nodes]
    for name, total in (*sums, ("all", epoch.total)) if len(sums) > 1 else sums:
        if len(total.by_method) > 1:
            parts = (
                f"{energy_in_words(joules, '~' if method is Method.ESTIMATED else '')} {method}"
                for method, joules in total.by_method.items()
            )
            lines.append(f"{name}: {' + '.join(parts)}")
    if epoch.total.lacks:
        lines.append(f"≥: the sums do not include {', '.join(epoch.total.lacks)}")
    if epoch.shared:
        lines.append(f"storage on {', '.join(epoch.shared)}: includes all other work on these nodes")
    for node in epoch.nodes:
        lines.extend(
            f"{node.node}: {device.name} {energy_in_words(device.joules)}, which contains others and is not added"
            for device in node.devices
            if not device.adds and device.joules is not None
        )
        lines.extend(_clock(node))
    for node in epoch.with_role(Role.COMPUTE):
        lines.extend(_resolution(node))
    return lines


def _clock(node: NodeEnergy) -> list[str]:
    """Return how much the clock's uncertainty may change the figures; it affects both edges."""
    lines = [f"{node.node}: its clock jumped {node.clock_jumps} times during the comparison"] * bool(node.clock_jumps)
    if node.total.joules is None or node.clock_error_ns is None:
        return lines
    off = figure(2 * node.clock_error_ns / 1e9 * node.total.joules / node.seconds)
    error = format_duration(node.clock_error_ns)
    return [*lines, f"{node.node}: its clock is known to ±{error}, which may shift {off} J between epochs"]


def _resolution(node: NodeEnergy) -> list[str]:
    steps = node.steps.get(View.BLOCKED)
    if node.resolution_ns is None or steps is None:
        return []
    line = f"{node.node}: resolution {format_duration(node.resolution_ns)}"
    if steps.mean_step_ns is not None:
        line += f", mean step {format_duration(steps.mean_step_ns)}"
    if steps.by_time_only:
        line += ": steps are shorter than that, so their energy is divided by time"
    if steps.biased_ns is None or all(one.domain is not Domain.GPU for one in node.devices):
        return [line]
    return [
        line,
        f"{node.node}: the sensors of GPUs see only a part of each 100 ms, so their figures may be biased with a "
        f"step every {format_duration(steps.biased_ns)}",
    ]


def _method(total: Total) -> str:
    if total.method is None:
        return ABSENT
    return f"{total.method}{' in part' if len(total.by_method) > 1 else ''}{error_of(total)}"
