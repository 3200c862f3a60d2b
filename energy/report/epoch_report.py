"""Reports of an epoch's energy for people.

Covers: the tables and sentences of a report, as text and as Markdown. Does not cover: the figures
(emlio.energy.job.epoch_energy), the JSON document (emlio.energy.report.epoch_document), plots
(emlio.energy.report.power_plot).
"""

from collections.abc import Sequence

from emlio.energy.job.epoch_energy import DOMAINS, EpochEnergy, NodeEnergy, Role
from emlio.energy.job.stage_table import View
from emlio.energy.report.stage_rows import StageRow, stage_rows
from emlio.energy.report.text_table import (
    ABSENT,
    EnergyUnit,
    TextTable,
    energy,
    energy_in_words,
    energy_of,
    figure,
    joules,
    unit_of,
)
from emlio.energy.values.domain import Domain, Method
from emlio.energy.values.plausibility import Verdict
from emlio.energy.values.spans import Stage
from emlio.energy.values.total import Total, sum_of
from emlio.units import format_duration

__all__ = ["epoch_headline", "epoch_sentences", "epoch_tables", "markdown_report", "text_report"]

_MEANS = {
    View.BLOCKED: "by what the loop waited for: train while the device computes, else preprocess while anything is "
    "decoded, else read",
    View.CPU_SHARE: "idle energy by time, energy above it by processor time; GPUs as in blocked",
    View.ABLATION: "differences of runs without a stage",
}
_SHARED = "in compute"
"""Shown where a daemon runs on a training node: its energy is part of that node's."""


def text_report(epochs: Sequence[EpochEnergy]) -> str:
    """Return the report for a terminal."""
    parts = [
        "\n\n".join(
            [epoch_headline(epoch), *(table.text() for table in epoch_tables(epoch)), "\n".join(epoch_sentences(epoch))]
        )
        for epoch in epochs
    ]
    return "\n\n\n".join([*parts, "\n".join(_meanings(epochs))])


def markdown_report(epochs: Sequence[EpochEnergy]) -> str:
    """Return the report as Markdown."""
    parts = [
        "\n\n".join(
            [
                f"### {epoch_headline(epoch)}",
                *(table.markdown() for table in epoch_tables(epoch)),
                "\n".join(f"* {sentence}" for sentence in epoch_sentences(epoch)),
            ]
        )
        for epoch in epochs
    ]
    return "\n\n".join([*parts, "\n".join(f"* {line}" for line in _meanings(epochs))])


def _meanings(epochs: Sequence[EpochEnergy]) -> list[str]:
    """Explain the terms used in the tables, once for all epochs."""
    views = {table.view for epoch in epochs for node in epoch.nodes for table in node.tables}
    return [
        "idle: power at rest x time; above: energy beyond that",
        *(f"{view}: {_MEANS[view]}" for view in View if view in views),
    ]


def epoch_headline(epoch: EpochEnergy) -> str:
    """Return the whole epoch in one line. Impossible figures are left out."""
    whole = f"{epoch.title}: {figure(epoch.duration_ns / 1e9)} s"
    if epoch.samples or not epoch.name:
        whole += f", {epoch.samples:,} samples"
    if epoch.impossible:
        return f"{whole}; the figures cannot be right, see below"
    whole += f", {energy_in_words(epoch.total)}"
    if epoch.name and not epoch.samples:
        return whole
    return f"{whole}, {joules(epoch.total, 1e6 * epoch.samples, unit=' J/sample') if epoch.samples else ABSENT}"


def epoch_tables(epoch: EpochEnergy) -> list[TextTable]:
    """Return the table of nodes, and tables of stages in each available view."""
    compute, storage = epoch.with_role(Role.COMPUTE), epoch.with_role(Role.STORAGE)
    stored = sum_of(node.total for node in storage) if storage else None
    unit = unit_of(epoch.total.energy_uj, *(node.total.energy_uj for node in epoch.nodes))
    tables = [_nodes_table(epoch, unit)]
    for view in View:
        rows = stage_rows(compute, view, stored)
        names = compute[0].node if len(compute) == 1 else f"{len(compute)} compute nodes, their seconds added"
        tables.extend([_stages_table(f"stages of {names}: {view}", rows, unit, epoch.shared)] if rows else [])
        for node in compute if len(compute) > 1 else ():
            rows = stage_rows([node], view)
            tables.extend([_stages_table(f"stages of {node.node}: {view}", rows, unit)] if rows else [])
    return tables


def _nodes_table(epoch: EpochEnergy, unit: EnergyUnit) -> TextTable:
    header = (
        *("node", "role", "method", "seconds"),
        *(f"{domain.upper()} {unit.name}" for domain in DOMAINS),
        *(f"total {unit.name}", "mean W", f"idle {unit.name}", f"above {unit.name}", "clock", "missed"),
    )
    rows = [_node_row(node, unit) for node in epoch.nodes]
    if len(epoch.nodes) > 1:
        domains = [energy(sum_of(node.of(domain) for node in epoch.nodes), unit) for domain in DOMAINS]
        idle = [node.idle_uj for node in epoch.nodes]
        rows.append(
            (
                *("all", ABSENT, _method(epoch.total), figure(epoch.duration_ns / 1e9)),
                *domains,
                *_sum_cells(epoch.total, epoch.duration_ns, None if None in idle else sum(filter(None, idle)), unit),
                *(ABSENT, str(sum(node.missed for node in epoch.nodes))),
            )
        )
    return TextTable(title="nodes", header=header, rows=tuple(rows), names=3)


def _node_row(node: NodeEnergy, unit: EnergyUnit) -> tuple[str, ...]:
    return (
        *(node.node, node.role, _method(node.total), figure(node.duration_ns / 1e9)),
        *(energy(node.of(domain), unit) for domain in DOMAINS),
        *_sum_cells(node.total, node.duration_ns, node.idle_uj, unit),
        _clock_cell(node),
        str(node.missed),
    )


def _clock_cell(node: NodeEnergy) -> str:
    if node.clock_error_ns is not None:
        return f"±{format_duration(node.clock_error_ns)}"
    return "own" if node.role is Role.COMPUTE else ABSENT


def _sum_cells(total: Total, duration_ns: int, idle_uj: int | None, unit: EnergyUnit) -> tuple[str, ...]:
    """Return the cells for energy, power, idle energy and energy above idle."""
    energy_uj = total.energy_uj
    above_uj = None if energy_uj is None or idle_uj is None else energy_uj - idle_uj
    watts = joules(total, duration_ns / 1000, error=False)
    return energy(total, unit), watts, _part(idle_uj, total, unit), _part(above_uj, total, unit)


def _stages_table(title: str, rows: Sequence[StageRow], unit: EnergyUnit, shared: Sequence[str] = ()) -> TextTable:
    whole = rows[-1]
    header = (
        *("stage", "seconds", "time"),
        *(f"{domain.upper()} {unit.name}" for domain in DOMAINS),
        *(f"total {unit.name}", "energy", f"idle {unit.name}", f"above {unit.name}", f"storage {unit.name}"),
    )
    return TextTable(title=title, header=header, rows=tuple(_stage_row(row, whole, unit, shared) for row in rows))


def _stage_row(row: StageRow, whole: StageRow, unit: EnergyUnit, shared: Sequence[str]) -> tuple[str, ...]:
    energy_uj, all_uj = row.total.energy_uj, whole.total.energy_uj
    part = f"{energy_uj / all_uj:.1%}" if energy_uj is not None and all_uj else ABSENT
    return (
        "total" if row.stage is None else row.stage,
        *(figure(row.duration_ns / 1e9), f"{row.duration_ns / whole.duration_ns:.1%}"),
        *(energy(row.of(domain), unit) for domain in DOMAINS),
        *(energy(row.total, unit), part, _part(row.idle_uj, row.total, unit), _part(row.dynamic_uj, row.total, unit)),
        _SHARED if row.storage is None and row.stage is Stage.READ and shared else _stored(row, unit),
    )


def _stored(row: StageRow, unit: EnergyUnit) -> str:
    return ABSENT if row.storage is None else energy(row.storage, unit)


def epoch_sentences(epoch: EpochEnergy) -> list[str]:
    """Return remarks that do not fit into the tables."""
    judgements = [judgement for node in epoch.nodes for judgement in node.judgements]
    lines = [str(one) for one in sorted(judgements, key=lambda one: one.verdict is not Verdict.IMPOSSIBLE)]
    sums = [(node.node, node.total) for node in epoch.nodes]
    for name, total in (*sums, ("all", epoch.total)) if len(sums) > 1 else sums:
        if total.mixed:
            lines.append(f"{name}: {_by_method(total)}")
    if epoch.total.lacks:
        lines.append(f"≥: the sums do not include {', '.join(epoch.total.lacks)}")
    if epoch.shared:
        lines.append(f"storage on {', '.join(epoch.shared)}: includes all other work on these nodes")
    for node in epoch.nodes:
        lines.extend([*_shown_only(node), *_clock(node)])
    compute = epoch.with_role(Role.COMPUTE)
    lines.extend(sentence for node in compute for sentence in _resolution(node))
    return lines


def _shown_only(node: NodeEnergy) -> list[str]:
    return [
        f"{node.node}: {part.device.name} {energy_of(part.energy_uj)}, which contains others and is not added"
        for part in node.devices
        if not part.device.adds and part.energy_uj is not None
    ]


def _clock(node: NodeEnergy) -> list[str]:
    """Return how much the clock's uncertainty may change the figures; it affects both edges."""
    energy_uj, error_ns = node.total.energy_uj, node.clock_error_ns
    lines = (
        [f"{node.node}: its clock jumped {node.clock_jumps} times during the comparison"] if node.clock_jumps else []
    )
    if energy_uj is None or error_ns is None:
        return lines
    off_j = 2 * error_ns * energy_uj / node.duration_ns / 1e6
    return [
        *lines,
        (
            f"{node.node}: its clock is known to ±{format_duration(error_ns)}, which may shift {figure(off_j)} J between "
            "epochs"
        ),
    ]


def _resolution(node: NodeEnergy) -> list[str]:
    table = next((table for table in node.tables if table.view is View.BLOCKED), None)
    if node.resolution_ns is None or table is None:
        return []
    lines = [f"{node.node}: resolution {format_duration(node.resolution_ns)}"]
    if table.mean_step_ns is not None:
        lines[0] += f", mean step {format_duration(table.mean_step_ns)}"
    if table.by_time_only:
        lines[0] += ": steps are shorter than that, so their energy is divided by time"
    if any(part.device.domain is Domain.GPU for part in node.devices) and table.beats_with_sensors:
        lines.append(
            f"{node.node}: the sensors of GPUs see only a part of each 100 ms, so their figures may be biased with a "
            f"step every {format_duration(table.step_period_ns or 0)}"
        )
    return lines


def _method(total: Total) -> str:
    if total.method is None:
        return ABSENT
    off = "" if total.error is None else f" ±{total.error:.0%}"
    return f"{total.method}{' in part' if total.mixed else ''}{off}"


def _by_method(total: Total) -> str:
    return " + ".join(
        f"{'~' if method is Method.ESTIMATED else ''}{energy_of(energy_uj)} {method}"
        for method, energy_uj in total.by_method
    )


def _part(energy_uj: int | None, of: Total, unit: EnergyUnit) -> str:
    """Return one of a sum's two terms, marked as an estimate if the sum is one."""
    if energy_uj is None:
        return ABSENT
    return f"{'~' if of.method is Method.ESTIMATED else ''}{energy_of(energy_uj, unit)}"
