"""The energy of an epoch, node by node.

Covers: cutting nodes' recordings at an epoch's edges, by their own clocks; figures by device,
domain, stage and sample. Does not cover: fetching recordings; tables for people
(emlio.energy.report.epoch_report).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from emlio.clocks.fit import ClockFit
from emlio.energy.job.baseline import Baseline
from emlio.energy.job.stage_table import StageTable
from emlio.energy.job.stages import CpuUse, blocked, cpu_share
from emlio.energy.values.domain import Domain
from emlio.energy.values.plausibility import Judgement, Verdict, judge
from emlio.energy.values.series import Series
from emlio.energy.values.spans import Span
from emlio.energy.values.total import DeviceEnergy, Total, sum_of, total_of
from emlio.energy.values.window import Window
from emlio.errors import ConfigError

__all__ = ["DOMAINS", "WHOLE_RUN", "EpochEnergy", "NodeEnergy", "NodeRecord", "Role", "measure_epoch"]

DOMAINS = (Domain.CPU, Domain.DRAM, Domain.GPU)
"""The domains that add up to a node's energy, as far as they are counted."""

WHOLE_RUN = "run"
"""The name of the time from the start of a command to its end, which is not an epoch."""

_EXPECTED = (Domain.CPU, Domain.DRAM)
"""The domains that every node has. A sum that lacks one says so. Not every node has a GPU."""


class Role(StrEnum):
    """The role of a node in a job."""

    COMPUTE = "compute"
    STORAGE = "storage"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnergy:
    """The energy of one node in one epoch.

    Attributes:
        node: its name.
        role: of the node.
        duration_ns: of the epoch, by the node's own clock.
        devices: all recorded devices, including those that contain others.
        tables: by stage, one for each view that is available; none for a storage node.
        clock_error_ns: the possible error of its edges; None for the node whose clock defines them.
        clock_jumps: how often its clock jumped while it was compared.
        missed: scheduled readings that were not made.
        resolution_ns: the typical time between readings; None with fewer than two.
        judgements: one for each domain that is counted.
    """

    node: str
    role: Role
    duration_ns: int
    devices: tuple[DeviceEnergy, ...]
    tables: tuple[StageTable, ...] = ()
    clock_error_ns: int | None = None
    clock_jumps: int = 0
    missed: int = 0
    resolution_ns: int | None = None
    judgements: tuple[Judgement, ...] = ()

    def of(self, domain: Domain) -> Total:
        """Return the energy of a domain's devices.

        With no devices, nothing is known and nothing is missing.
        """
        return total_of((part for part in self.devices if part.device.domain is domain), node=self.node)

    @property
    def total(self) -> Total:
        """The energy of the node, as far as it is counted."""
        return total_of(self.devices, node=self.node, lacks=self.uncounted)

    @property
    def uncounted(self) -> tuple[str, ...]:
        """The domains that every node has and this one does not count."""
        counted = {part.device.domain for part in self.devices if part.device.adds}
        return tuple(f"{domain.upper()} of {self.node}" for domain in _EXPECTED if domain not in counted)

    @property
    def idle_uj(self) -> int | None:
        """The idle energy of the devices whose energy is known.

        None where one of them has no baseline.
        """
        known = [part.idle_uj for part in self.devices if part.device.adds and part.energy_uj is not None]
        idle = [part for part in known if part is not None]
        return sum(idle) if known and len(idle) == len(known) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnergy:
    """The energy of an epoch on all nodes.

    Attributes:
        epoch: its number.
        duration_ns: from edge to edge.
        samples: how many were delivered.
        nodes: all of them, each once.
        name: of a period that is not an ordinary epoch, such as `WHOLE_RUN`; empty for an epoch.
        shared: compute nodes that also run a daemon. Their figures include the daemon's energy.
    """

    epoch: int
    duration_ns: int
    samples: int
    nodes: tuple[NodeEnergy, ...]
    name: str = ""
    shared: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [node.node for node in self.nodes]
        if len(set(names)) != len(names):
            raise ConfigError(f"a node must be counted once, got {names}")
        if self.duration_ns <= 0 or self.samples < 0:
            raise ConfigError(
                f"an epoch must have a duration above 0 and at least 0 samples, got {self.duration_ns} ns and "
                f"{self.samples}"
            )

    @property
    def title(self) -> str:
        """The name, or "epoch" and the number."""
        return self.name or f"epoch {self.epoch}"

    def with_role(self, role: Role) -> tuple[NodeEnergy, ...]:
        """Return the nodes with this role."""
        return tuple(node for node in self.nodes if node.role is role)

    @property
    def total(self) -> Total:
        """The energy of all nodes."""
        return sum_of(node.total for node in self.nodes)

    @property
    def impossible(self) -> tuple[Judgement, ...]:
        """The judgements that show a figure cannot be right."""
        found = [judgement for node in self.nodes for judgement in node.judgements]
        return tuple(judgement for judgement in found if judgement.verdict is Verdict.IMPOSSIBLE)


def measure_epoch(*, epoch: int, from_ns: int, to_ns: int, samples: int, records: Iterable[NodeRecord]) -> EpochEnergy:
    """Cut all recordings at the epoch's edges.

    Args:
        epoch: its number.
        from_ns: its first edge, by the clock that the records' clocks were compared with.
        to_ns: its second edge.
        samples: how many were delivered between them.
        records: of all nodes.
    """
    return EpochEnergy(
        epoch=epoch,
        duration_ns=to_ns - from_ns,
        samples=samples,
        nodes=tuple(_node(record, from_ns, to_ns) for record in records),
    )


def _node(record: NodeRecord, from_ns: int, to_ns: int) -> NodeEnergy:
    clock, series = record.clock, record.series
    begun_ns, ended_ns = (from_ns, to_ns) if clock is None else (clock.theirs_at(from_ns), clock.theirs_at(to_ns))
    if ended_ns <= begun_ns:  # the node's clock was set back: the epoch's energy is unknown
        nothing = tuple(DeviceEnergy(device=device, energy_uj=None) for device in series.devices)
        return NodeEnergy(node=record.node, role=record.role, duration_ns=to_ns - from_ns, devices=nothing)
    window = Window(series=series, from_ns=begun_ns, to_ns=ended_ns)
    devices = tuple(_device(window, record.baseline, place) for place in range(len(series.devices)))
    return NodeEnergy(
        node=record.node,
        role=record.role,
        duration_ns=window.duration_ns,
        devices=devices,
        tables=_tables(record, window) if record.role is Role.COMPUTE else (),
        clock_error_ns=None if clock is None else clock.error_between(from_ns, to_ns),
        clock_jumps=0 if clock is None else clock.jumps,
        missed=series.missed(begun_ns, ended_ns),
        resolution_ns=window.resolution_ns,
        judgements=_judgements(record.node, devices, window.duration_ns),
    )


def _device(window: Window, baseline: Baseline, place: int) -> DeviceEnergy:
    device = window.series.devices[place]
    idle = baseline.idle(device.name)
    return DeviceEnergy(
        device=device,
        energy_uj=window.energy_uj(device.name),
        idle_uj=None if idle is None else idle.energy_uj(window.duration_ns),
        uncounted=window.series.is_lower_bound(device.name, window.from_ns, window.to_ns),
    )


def _tables(record: NodeRecord, window: Window) -> tuple[StageTable, ...]:
    first = blocked(window, record.spans, record.baseline)
    return (first,) if record.cpu is None else (first, cpu_share(window, record.spans, record.baseline, record.cpu))


def _judgements(node: str, devices: Sequence[DeviceEnergy], duration_ns: int) -> tuple[Judgement, ...]:
    """Judge each domain that has devices."""
    parts = {
        domain: [part for part in devices if part.device.domain is domain and part.device.adds] for domain in DOMAINS
    }
    return tuple(judge(f"{node}, {domain.upper()}", found, duration_ns) for domain, found in parts.items() if found)
