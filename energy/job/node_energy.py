"""Measuring the energy of a node in an epoch."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from emlio.clocks.fit import ClockFit
from emlio.energy.job.baseline import Baseline, device_energies
from emlio.energy.job.epoch_energy import DOMAINS, TOTAL, DeviceFigures, NodeEnergy, Role, StageRow, stage_row
from emlio.energy.job.stages import CpuUse, StageShare, View, blocked, cpu_share, steps_of
from emlio.energy.values.device import Domain
from emlio.energy.values.plausibility import Judgement, judge
from emlio.energy.values.series import Series
from emlio.energy.values.spans import Span
from emlio.energy.values.total import DeviceEnergy, joules_of, total_of
from emlio.energy.values.window import Window

__all__ = ["NodeRecord", "measure_node", "node_energy"]

_EXPECTED = (Domain.CPU, Domain.DRAM)
"""The domains that every node has. A sum that lacks one says so. Not every node has a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A node's recording and the data needed to interpret it.

    Attributes:
        node: its name. A machine that is both storage and compute has one record, as compute.
        role: of the node.
        series: the recording.
        baseline: of the node; may be empty.
        spans: of a compute node's threads and devices.
        cpu: processor time of its stages in this epoch; None where it was not noted.
        clock: its clock against ours; None for the node whose clock defines the epoch's edges.
    """

    node: str
    role: Role
    series: Series
    baseline: Baseline = field(default_factory=Baseline)
    spans: tuple[Span, ...] = ()
    cpu: CpuUse | None = None
    clock: ClockFit | None = None


def measure_node(record: NodeRecord, from_ns: int, to_ns: int) -> NodeEnergy:
    """Cut a recording at an epoch's edges.

    Args:
        record: of the node.
        from_ns: the first edge, by the clock that the record's clock was compared with.
        to_ns: the second edge.
    """
    clock, series, baseline = record.clock, record.series, record.baseline
    begun_ns, ended_ns = (from_ns, to_ns) if clock is None else (clock.theirs_at(from_ns), clock.theirs_at(to_ns))
    if ended_ns <= begun_ns:  # the node's clock was set back: the epoch's energy is unknown
        nothing = [DeviceEnergy(device=device, energy_uj=None) for device in series.devices]
        return node_energy(record.node, record.role, to_ns - from_ns, nothing)
    window = Window(series=series, from_ns=begun_ns, to_ns=ended_ns)
    parts = device_energies(window, baseline)
    views: dict[View, tuple[StageShare, ...]] = {}
    if record.role is Role.COMPUTE:
        views[View.BLOCKED] = blocked(window, record.spans, baseline)
        if record.cpu is not None:
            views[View.CPU_SHARE] = cpu_share(window, record.spans, baseline, record.cpu)
    return msgspec.structs.replace(
        node_energy(record.node, record.role, window.duration_ns, parts),
        clock_error_ns=None if clock is None else clock.error_between(from_ns, to_ns),
        clock_jumps=0 if clock is None else clock.jumps,
        missed_ticks=series.missed(begun_ns, ended_ns),
        resolution_ns=window.resolution_ns,
        steps=dict.fromkeys(views, steps_of(window, record.spans)),
        plausibility=_judgements(record.node, parts, window.duration_ns),
        stages={view: _rows(record.node, parts, shares) for view, shares in views.items() if parts},
    )


def node_energy(name: str, role: Role, duration_ns: int, parts: Sequence[DeviceEnergy] = ()) -> NodeEnergy:
    """Return the energy of a node's devices; without any, it is unknown."""
    row = _row(TOTAL, duration_ns, parts, name)
    return NodeEnergy(
        node=name,
        role=role,
        seconds=row.seconds,
        domains=row.domains,
        total=row.total,
        mean_watts=None if row.total.energy_uj is None else row.total.energy_uj * 1000 / duration_ns,
        idle_joules=row.idle_joules,
        above_idle_joules=row.above_idle_joules,
        devices=tuple(map(_figures, parts)),
    )


def _figures(part: DeviceEnergy) -> DeviceFigures:
    known = {
        name: getattr(part.device, name) for name in ("name", "domain", "source", "method", "adds", "error", "note")
    }
    return DeviceFigures(
        joules=joules_of(part.energy_uj), idle_joules=joules_of(part.idle_uj), uncounted=part.uncounted, **known
    )


def _judgements(node: str, parts: Sequence[DeviceEnergy], duration_ns: int) -> tuple[Judgement, ...]:
    """Judge each domain that has devices."""
    by_domain = {
        domain: [one for one in parts if one.device.domain is domain and one.device.adds] for domain in DOMAINS
    }
    return tuple(judge(f"{node}, {domain.upper()}", found, duration_ns) for domain, found in by_domain.items() if found)


def _rows(node: str, wholes: Sequence[DeviceEnergy], shares: Sequence[StageShare]) -> tuple[StageRow, ...]:
    """Return one row for each stage and one for their sum."""
    rows = [_row(share.stage, share.duration_ns, share.parts, node) for share in shares]
    return (*rows, _row(TOTAL, sum(share.duration_ns for share in shares), wholes, node))


def _row(stage: str, duration_ns: int, parts: Sequence[DeviceEnergy], node: str) -> StageRow:
    """Return a row of these parts of a node's devices."""
    counted = {part.device.domain for part in parts if part.device.adds}
    lacks = [f"{domain.upper()} of {node}" for domain in _EXPECTED if domain not in counted]
    total = total_of(parts, node=node, lacks=lacks)
    domains = {
        domain: total_of((part for part in parts if part.device.domain is domain), node=node) for domain in DOMAINS
    }
    idle = [part.idle_uj for part in parts if part.device.adds and part.energy_uj is not None]
    return stage_row(stage, duration_ns / 1e9, domains, total, idle)
