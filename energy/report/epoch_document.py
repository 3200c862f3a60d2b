"""The energy of epochs as a JSON-compatible document.

Covers: its names and units, its version. Does not cover: the figures
(emlio.energy.job.epoch_energy). An unknown value is null.
"""

from collections.abc import Sequence
from typing import Any

from emlio.energy.job.epoch_energy import DOMAINS, WHOLE_RUN, EpochEnergy, NodeEnergy, Role
from emlio.energy.job.stage_table import View
from emlio.energy.report.stage_rows import StageRow, stage_rows
from emlio.energy.values.total import DeviceEnergy, Total, sum_of

__all__ = ["SCHEMA", "report_document"]

SCHEMA = 1
"""The schema version. It rises when a name or a unit changes its meaning."""


def report_document(epochs: Sequence[EpochEnergy]) -> dict[str, Any]:
    """Return the document of all epochs."""
    return {"schema": SCHEMA, "epochs": [_epoch(epoch) for epoch in epochs]}


def _epoch(epoch: EpochEnergy) -> dict[str, Any]:
    compute, storage = epoch.with_role(Role.COMPUTE), epoch.with_role(Role.STORAGE)
    stored = sum_of(node.total for node in storage) if storage else None
    energy_uj = epoch.total.energy_uj
    each_j = energy_uj / 1e6 / epoch.samples if epoch.samples and energy_uj is not None else None
    return {
        "epoch": None if epoch.name == WHOLE_RUN else epoch.epoch,
        "title": epoch.title,
        "seconds": epoch.duration_ns / 1e9,
        "samples": epoch.samples,
        "total": _total(epoch.total),
        "joules_per_sample": each_j,
        "impossible": [str(judgement) for judgement in epoch.impossible],
        "nodes": [_node(node) for node in epoch.nodes],
        "shared": list(epoch.shared),
        "stages": {
            view.value: [_row(row) for row in rows] for view in View if (rows := stage_rows(compute, view, stored))
        },
    }


def _node(node: NodeEnergy) -> dict[str, Any]:
    watts = None if node.total.energy_uj is None else node.total.energy_uj * 1000 / node.duration_ns
    return {
        "node": node.node,
        "role": node.role.value,
        "seconds": node.duration_ns / 1e9,
        "domains": {domain.value: _total(node.of(domain)) for domain in DOMAINS},
        "total": _total(node.total),
        "mean_watts": watts,
        **_terms(node.total.energy_uj, node.idle_uj),
        "devices": [_device(part) for part in node.devices],
        "clock_error_ns": node.clock_error_ns,
        "clock_jumps": node.clock_jumps,
        "missed_ticks": node.missed,
        "resolution_ns": node.resolution_ns,
        "steps": {
            table.view.value: {"mean_step_ns": table.mean_step_ns, "by_time_only": table.by_time_only}
            for table in node.tables
        },
        "plausibility": [
            {"subject": one.subject, "verdict": one.verdict.value, "reason": one.reason} for one in node.judgements
        ],
    }


def _row(row: StageRow) -> dict[str, Any]:
    return {
        "stage": "total" if row.stage is None else row.stage.value,
        "seconds": row.duration_ns / 1e9,
        "domains": {domain.value: _total(row.of(domain)) for domain in DOMAINS},
        "total": _total(row.total),
        **_terms(row.total.energy_uj, row.idle_uj),
        "storage": None if row.storage is None else _total(row.storage),
    }


def _total(total: Total) -> dict[str, Any]:
    return {
        "joules": _joules(total.energy_uj),
        "method": None if total.method is None else total.method.value,
        "by_method": {method.value: energy_uj / 1e6 for method, energy_uj in total.by_method},
        "error": total.error,
        "lacks": list(total.lacks),
    }


def _terms(energy_uj: int | None, idle_uj: int | None) -> dict[str, Any]:
    """Return idle energy, and energy above idle."""
    above_uj = None if energy_uj is None or idle_uj is None else energy_uj - idle_uj
    return {"idle_joules": _joules(idle_uj), "above_idle_joules": _joules(above_uj)}


def _device(part: DeviceEnergy) -> dict[str, Any]:
    device = part.device
    return {
        "name": device.name,
        "domain": device.domain.value,
        "source": device.source,
        "method": device.method.value,
        "adds": device.adds,
        "error": device.error,
        "joules": _joules(part.energy_uj),
        "idle_joules": _joules(part.idle_uj),
        "uncounted": part.uncounted,
        "note": device.note,
    }


def _joules(energy_uj: int | None) -> float | None:
    return None if energy_uj is None else energy_uj / 1e6
