"""The JSON document of a job, parsed into values.

Covers: parsing the document, the parts of it that comparisons use. Does not cover: writing it
(emlio.energy.report.job_document), comparing (emlio.energy.report.comparison).
"""

from pathlib import Path

import msgspec

from emlio.energy.report.epoch_document import SCHEMA
from emlio.energy.values.domain import Method
from emlio.errors import ConfigError

__all__ = ["DeviceSummary", "EpochSummary", "JobSummary", "NodeSummary", "TotalSummary", "read_summary", "summary_of"]


class TotalSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A sum; an unknown value is None. `error` is of the estimates in it, relative to the sum."""

    joules: float | None
    method: str | None = None
    error: float | None = None
    lacks: tuple[str, ...] = ()

    @property
    def error_joules(self) -> float:
        """The possible error in joules; 0 where nothing is estimated."""
        return abs(self.joules or 0.0) * (self.error or 0.0)


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
        joules_per_sample: None where there are no samples, or the energy is unknown.
        impossible: reasons why a figure cannot be right.
        nodes: all of them.
    """

    title: str
    seconds: float
    samples: int
    total: TotalSummary
    joules_per_sample: float | None
    impossible: tuple[str, ...]
    nodes: tuple[_NodeOfEpoch, ...]

    def joules(self, domain: str, role: str | None) -> float | None:
        """Return the sum of the nodes' energies that are known; None where none is.

        Args:
            domain: such as "cpu"; empty for all that add up.
            role: of the nodes; None for all.
        """
        known = [one for one in self._sums(domain, role) if one.joules is not None]
        return sum(one.joules or 0.0 for one in known) if known else None

    def error_joules(self, domain: str, role: str | None) -> float:
        """Return the possible error of that sum; 0 where nothing is estimated."""
        return sum(one.error_joules for one in self._sums(domain, role))

    def _sums(self, domain: str, role: str | None) -> list[TotalSummary]:
        nodes = [one for one in self.nodes if role in (None, one.role)]
        sums = [one.domains.get(domain) if domain else one.total for one in nodes]
        return [one for one in sums if one is not None]

    @property
    def lacks(self) -> tuple[str, ...]:
        """The parts missing from the total.

        Names of nodes are left out, since they may differ between jobs.
        """
        return tuple(
            f"{one.partition(' of ')[0]} of a {node.role} node" for node in self.nodes for one in node.total.lacks
        )


class DeviceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded device."""

    name: str
    domain: str
    source: str
    method: str
    adds: bool
    note: str = ""


class NodeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A node; an unknown value, as of a daemon's node, is empty or None."""

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
        schema: version of the document.
        epochs: in the order of time.
        job: what holds for all epochs.
    """

    schema: int
    epochs: tuple[EpochSummary, ...]
    job: _Job

    @property
    def command(self) -> str:
        """The command; empty where it is unknown."""
        return " ".join(self.job.command)

    @property
    def nodes(self) -> tuple[NodeSummary, ...]:
        """All nodes, each once."""
        return self.job.nodes

    @property
    def datasets(self) -> tuple[str, ...]:
        """The fingerprints of the datasets."""
        return self.job.datasets

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """The settings of the loaders."""
        return tuple(self.job.settings.items())

    @property
    def whole(self) -> tuple[EpochSummary, ...]:
        """The epochs that were iterated from their beginning to their end."""
        return tuple(one for one in self.epochs if one.title not in self.job.partial)

    @property
    def estimated(self) -> bool:
        """True if any device's energy is estimated."""
        return any(one.method == Method.ESTIMATED for node in self.nodes for one in node.devices)

    def with_role(self, role: str) -> tuple[NodeSummary, ...]:
        """Return the nodes with this role."""
        return tuple(one for one in self.nodes if one.role == role)


def summary_of(document: bytes, where: str) -> JobSummary:
    """Parse a document.

    Args:
        document: as JSON.
        where: its origin, for errors.
    """
    try:
        found = msgspec.json.decode(document, type=JobSummary)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} is not an energy report of a job: {error}") from error
    if found.schema != SCHEMA:
        raise ConfigError(f"{where} must be a report of version {SCHEMA}, got version {found.schema}")
    return found


def read_summary(path: Path) -> JobSummary:
    """Read a file that `emlio energy run` or `report --json` wrote."""
    try:
        return summary_of(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: the report cannot be read: {error.strerror}") from error
