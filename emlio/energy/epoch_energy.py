"""What an epoch used, node by node.

Covers: cutting nodes' recordings at an epoch's edges, by their own clocks; figures by device, domain, stage and sample. Does not
cover: fetching recordings; tables for people (emlio.energy.report).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from emlio.energy.baseline import Baseline
from emlio.energy.clocks import ClockFit
from emlio.energy.domain import Domain
from emlio.energy.plausibility import Judgement, Verdict, judge
from emlio.energy.series import Series
from emlio.energy.spans import Span
from emlio.energy.stage_table import StageTable
from emlio.energy.stages import CpuUse, blocked, cpu_share
from emlio.energy.total import DeviceEnergy, Total, sum_of, total_of
from emlio.energy.window import Window
from emlio.errors import ConfigError

__all__ = ["DOMAINS", "WHOLE_RUN", "EpochEnergy", "NodeEnergy", "NodeRecord", "Role", "measure_epoch"]

DOMAINS = (Domain.CPU, Domain.DRAM, Domain.GPU)
"""What adds up to a node, as far as it is counted."""

WHOLE_RUN = "run"
"""The name of a command's time from its begin to its end, which is no epoch."""

_EXPECTED = (Domain.CPU, Domain.DRAM)
"""Every node has them, so a sum without them says so. Not every node has a GPU."""


class Role(StrEnum):
    """What a node is there for."""

    COMPUTE = "compute"
    STORAGE = "storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A node's recording and what is needed to read it.

    Attributes:
        node: its name. A machine that is both storage and compute has one record, as compute.
        role: what it is there for.
        series: the recording.
        baseline: of the node; may be empty.
        spans: of a compute node's threads and devices.
        cpu: processor time of its stages in this epoch; None where it was not noted.
        clock: its clock against ours; None for the node whose clock the epoch's edges are of.
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
    """What one node used.

    Attributes:
        node: its name.
        role: what it is there for.
        duration_ns: of the epoch, by its own clock.
        devices: all that were recorded, with those that contain others.
        tables: by stages, one for each view that can be made; none for a storage node.
        clock_error_ns: its edges may be off by this; None for the node whose clock they are of.
        clock_jumps: how often its clock jumped while it was compared.
        missed: moments of its schedule without a reading.
        resolution_ns: its readings are typically so far apart; None where there are not two.
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
        """What the devices of a domain used. Where it has none, nothing is known and nothing is missed."""
        return total_of((part for part in self.devices if part.device.domain is domain), node=self.node)

    @property
    def total(self) -> Total:
        """What the node used, as far as it is counted."""
        return total_of(self.devices, node=self.node, lacks=self.uncounted)

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Domains that every node has and this one does not count."""
        counted = {part.device.domain for part in self.devices if part.device.adds}
        return tuple(f"{domain.upper()} of {self.node}" for domain in _EXPECTED if domain not in counted)

    @property
    def idle_uj(self) -> int | None:
        """What the devices whose energy is known would have drawn at rest; None where one has no baseline."""
        known = [part.idle_uj for part in self.devices if part.device.adds and part.energy_uj is not None]
        idle = [part for part in known if part is not None]
        return sum(idle) if known and len(idle) == len(known) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnergy:
    """What an epoch used.

    Attributes:
        epoch: its number.
        duration_ns: from edge to edge.
        samples: how many were delivered.
        nodes: all of them, each once.
        name: what it is where it is no epoch, such as `WHOLE_RUN`; empty for an epoch.
        shared: daemons' nodes that are among the compute nodes: what they used is in that of those.
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
                f"an epoch must last and must not have less than 0 samples, got {self.duration_ns} ns and {self.samples}"
            )

    @property
    def title(self) -> str:
        """Its name, or "epoch" and its number."""
        return self.name or f"epoch {self.epoch}"

    def with_role(self, role: Role) -> tuple[NodeEnergy, ...]:
        """The nodes that are there for this."""
        return tuple(node for node in self.nodes if node.role is role)

    @property
    def total(self) -> Total:
        """Of all nodes."""
        return sum_of(node.total for node in self.nodes)

    @property
    def impossible(self) -> tuple[Judgement, ...]:
        """What shows that a figure cannot be right."""
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
    if ended_ns <= begun_ns:  # its clock was set back: nothing can be said of this stretch
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
    """Of each domain that has devices."""
    parts = {
        domain: [part for part in devices if part.device.domain is domain and part.device.adds] for domain in DOMAINS
    }
    return tuple(judge(f"{node}, {domain.upper()}", found, duration_ns) for domain, found in parts.items() if found)
