"""The energy of an epoch, node by node, as it stands in documents.

An unknown value is None.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from emlio.energy.job.stages import Steps, View
from emlio.energy.values.device import Domain, Method
from emlio.energy.values.plausibility import Judgement, Verdict
from emlio.energy.values.spans import Stage
from emlio.energy.values.total import Total, joules_of, sum_of
from emlio.errors import ConfigError

__all__ = [
    "DOMAINS",
    "TOTAL",
    "DeviceFigures",
    "EpochEnergy",
    "NodeEnergy",
    "Role",
    "StageRow",
    "epoch_energy",
    "stage_row",
]

DOMAINS = (Domain.CPU, Domain.DRAM, Domain.GPU)
"""The domains that add up to a node's energy, as far as they are counted."""

TOTAL = "total"
"""The name of the row that is the sum of all stages."""


class Role(StrEnum):
    """The role of a node in a job."""

    COMPUTE = "compute"
    STORAGE = "storage"


class DeviceFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A device that was recorded, with its energy; `uncounted` if it may have used more."""

    name: str
    domain: Domain
    source: str
    method: Method
    adds: bool
    error: float | None
    joules: float | None
    idle_joules: float | None
    uncounted: bool
    note: str


class StageRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stage of compute nodes, or the sum of all, which is called "total".

    Attributes:
        stage: its name.
        seconds: its time on all nodes, added up.
        domains: energy by domain.
        total: of all domains.
        idle_joules: the idle part; None unless it is known for each device whose energy is known.
        above_idle_joules: the rest.
        storage: the energy of storage nodes, all of it for read; None in the rows of other stages.
    """

    stage: str
    seconds: float
    domains: dict[Domain, Total]
    total: Total
    idle_joules: float | None
    above_idle_joules: float | None
    storage: Total | None = None


class NodeEnergy(msgspec.Struct, frozen=True, kw_only=True):
    """The energy of one node in one epoch.

    Attributes:
        node: its name.
        role: of the node.
        seconds: of the epoch, by the node's own clock.
        domains: energy by domain. With no devices, nothing is known and nothing is missing.
        total: of the node, as far as it is counted.
        mean_watts: over the epoch.
        idle_joules: of the devices whose energy is known; None where one has no baseline.
        above_idle_joules: the rest.
        devices: all recorded devices, including those that contain others.
        clock_error_ns: the possible error of its edges; None for the node whose clock defines them.
        clock_jumps: how often its clock jumped while it was compared.
        missed_ticks: scheduled readings that were not made.
        resolution_ns: the typical time between readings; None with fewer than two.
        steps: by view.
        plausibility: one for each domain that is counted.
        stages: a row for each stage and one for their sum, by view; empty for a storage node.
    """

    node: str
    role: Role
    seconds: float
    domains: dict[Domain, Total]
    total: Total
    mean_watts: float | None
    idle_joules: float | None
    above_idle_joules: float | None
    devices: tuple[DeviceFigures, ...]
    clock_error_ns: int | None = None
    clock_jumps: int = 0
    missed_ticks: int = 0
    resolution_ns: int | None = None
    steps: dict[View, Steps] = {}
    plausibility: tuple[Judgement, ...] = ()
    stages: dict[View, tuple[StageRow, ...]] = {}


class EpochEnergy(msgspec.Struct, frozen=True, kw_only=True):
    """The energy of an epoch on all nodes, or of a command from start to end.

    Attributes:
        epoch: its number; None for a command.
        title: such as "epoch 3".
        seconds: from edge to edge.
        samples: how many were delivered.
        total: of all nodes.
        joules_per_sample: None where there are no samples, or the energy is unknown.
        impossible: the judgements that show a figure cannot be right.
        nodes: all of them, each once.
        shared: compute nodes that also run a daemon. Their figures include the daemon's energy.
        stages: of all compute nodes together, by view.
    """

    epoch: int | None
    title: str
    seconds: float
    samples: int
    total: Total
    joules_per_sample: float | None
    impossible: tuple[str, ...]
    nodes: tuple[NodeEnergy, ...]
    shared: tuple[str, ...] = ()
    stages: dict[View, tuple[StageRow, ...]] = {}

    def with_role(self, role: Role) -> tuple[NodeEnergy, ...]:
        """Return the nodes with this role."""
        return tuple(node for node in self.nodes if node.role is role)


def epoch_energy(
    *,
    epoch: int | None,
    title: str,
    duration_ns: int,
    samples: int,
    nodes: Iterable[NodeEnergy],
    shared: Iterable[str] = (),
) -> EpochEnergy:
    """Join the nodes of an epoch."""
    all_of_them = tuple(nodes)
    names = [node.node for node in all_of_them]
    if len(set(names)) != len(names):
        raise ConfigError(f"a node must be counted once, got {names}")
    if duration_ns <= 0 or samples < 0:
        raise ConfigError(
            f"an epoch must have a duration above 0 and at least 0 samples, got {duration_ns} ns and {samples}"
        )
    total = sum_of(node.total for node in all_of_them)
    stored = [node.total for node in all_of_them if node.role is Role.STORAGE]
    compute = [node for node in all_of_them if node.role is Role.COMPUTE]
    judged = [judgement for node in all_of_them for judgement in node.plausibility]
    return EpochEnergy(
        epoch=epoch,
        title=title,
        seconds=duration_ns / 1e9,
        samples=samples,
        total=total,
        joules_per_sample=total.joules / samples if samples and total.joules is not None else None,
        impossible=tuple(str(one) for one in judged if one.verdict is Verdict.IMPOSSIBLE),
        nodes=all_of_them,
        shared=tuple(shared),
        stages=_together(compute, sum_of(stored) if stored else None),
    )


def stage_row(
    stage: str, seconds: float, domains: dict[Domain, Total], total: Total, idle: Sequence[int | None]
) -> StageRow:
    """Return a row; `idle` has the idle energy in µJ of each part whose energy is known."""
    known = [idle_uj for idle_uj in idle if idle_uj is not None]
    idle_uj = sum(known) if idle and len(known) == len(idle) else None
    energy_uj = total.energy_uj
    return StageRow(
        stage=stage,
        seconds=seconds,
        domains=domains,
        total=total,
        idle_joules=joules_of(idle_uj),
        above_idle_joules=None if energy_uj is None or idle_uj is None else (energy_uj - idle_uj) / 1e6,
    )


def _together(nodes: Sequence[NodeEnergy], stored: Total | None) -> dict[View, tuple[StageRow, ...]]:
    """Return the rows of all nodes, with storage beside them. A view that a node lacks is left out."""
    return {
        view: tuple(_added(rows, stored) for rows in zip(*(node.stages[view] for node in nodes), strict=True))
        for view in View
        if nodes and all(view in node.stages for node in nodes)
    }


def _added(rows: Sequence[StageRow], stored: Total | None) -> StageRow:
    idle = [row.idle_joules for row in rows if row.total.joules is not None]
    whole = stage_row(
        rows[0].stage,
        round(sum(row.seconds for row in rows), 9),
        {domain: sum_of(row.domains[domain] for row in rows) for domain in DOMAINS},
        sum_of(row.total for row in rows),
        [None if joules is None else round(joules * 1e6) for joules in idle],
    )
    return msgspec.structs.replace(whole, storage=stored if whole.stage in (Stage.READ, TOTAL) else None)
