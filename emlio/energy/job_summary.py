"""What a job's report for programs says, as values.

Covers: reading the document again, the parts of it that jobs are compared by. Does not cover: writing it
(emlio.energy.job_document), comparing (emlio.energy.comparison).
"""

from pathlib import Path

import msgspec

from emlio.energy.domain import Method
from emlio.energy.report_document import SCHEMA
from emlio.errors import ConfigError

__all__ = ["DeviceSummary", "EpochSummary", "JobSummary", "NodeSummary", "TotalSummary", "read_summary", "summary_of"]


class TotalSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A sum; what is not known is None."""

    joules: float | None
    method: str | None = None
    lacks: tuple[str, ...] = ()


class _NodeOfEpoch(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    role: str
    domains: dict[str, TotalSummary]
    total: TotalSummary


class EpochSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An epoch.

    Attributes:
        title: such as "epoch 3".
        seconds: from edge to edge.
        samples: delivered between them.
        total: of all nodes.
        joules_per_sample: None where there are no samples, or no joules.
        impossible: what shows that a figure cannot be right.
        nodes: all of them.
    """

    title: str
    seconds: float
    samples: int
    total: TotalSummary
    joules_per_sample: float | None
    impossible: tuple[str, ...]
    nodes: tuple[_NodeOfEpoch, ...]

    def joules(self, domain: str, role: str | None, *, per: float) -> float | None:
        """What nodes used, added up; None where nothing is known.

        Args:
            domain: such as "cpu"; empty for all that add up.
            role: of the nodes; None for all.
            per: joules in the unit that is wanted.
        """
        nodes = [one for one in self.nodes if role in (None, one.role)]
        sums = [one.domains.get(domain) if domain else one.total for one in nodes]
        known = [one.joules for one in sums if one is not None and one.joules is not None]
        return sum(known) / per if known else None

    @property
    def total_kj(self) -> float | None:
        """Of all nodes."""
        return None if self.total.joules is None else self.total.joules / 1e3

    @property
    def mean_watts(self) -> float | None:
        """Of all nodes together."""
        return None if self.total.joules is None else self.total.joules / self.seconds

    @property
    def lacks(self) -> tuple[str, ...]:
        """What is not in the total, without the names of nodes, which may differ."""
        return tuple(
            f"{one.partition(' of ')[0]} of a {node.role} node" for node in self.nodes for one in node.total.lacks
        )


class DeviceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One that was recorded."""

    name: str
    domain: str
    source: str
    method: str
    adds: bool
    note: str = ""


class NodeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A node; what is not known of a daemon's is empty or None."""

    node: str
    role: str
    processor: str
    cores: int | None
    memory_bytes: int | None
    devices: tuple[DeviceSummary, ...]


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    command: tuple[str, ...]
    nodes: tuple[NodeSummary, ...]
    datasets: tuple[str, ...]
    settings: dict[str, str]
    partial: tuple[str, ...]


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A job.

    Attributes:
        schema: of the document.
        epochs: in the order of time.
        job: what holds for all of them.
    """

    schema: int
    epochs: tuple[EpochSummary, ...]
    job: _Job

    @property
    def command(self) -> str:
        """What was run; empty where that is not known."""
        return " ".join(self.job.command)

    @property
    def nodes(self) -> tuple[NodeSummary, ...]:
        """All of them, each once."""
        return self.job.nodes

    @property
    def datasets(self) -> tuple[str, ...]:
        """Their fingerprints."""
        return self.job.datasets

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """What loaders were told."""
        return tuple(self.job.settings.items())

    @property
    def whole(self) -> tuple[EpochSummary, ...]:
        """Epochs that were neither left early nor begun in the middle."""
        return tuple(one for one in self.epochs if one.title not in self.job.partial)

    @property
    def estimated(self) -> bool:
        """Whether any device of it is."""
        return any(one.method == Method.ESTIMATED for node in self.nodes for one in node.devices)

    def with_role(self, role: str) -> tuple[NodeSummary, ...]:
        """Nodes that are there for this."""
        return tuple(one for one in self.nodes if one.role == role)


def summary_of(document: bytes, where: str) -> JobSummary:
    """Read a document.

    Args:
        document: as JSON.
        where: it came from, for errors.
    """
    try:
        found = msgspec.json.decode(document, type=JobSummary)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} must be a report of a job's energy: {error}") from error
    if found.schema != SCHEMA:
        raise ConfigError(f"{where} must be a report of version {SCHEMA}, got version {found.schema}")
    return found


def read_summary(path: Path) -> JobSummary:
    """Read a file that `emlio energy run` or `report --json` wrote."""
    try:
        return summary_of(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(f"there must be a report to read at {path}: {error.strerror}") from error
