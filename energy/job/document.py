"""The energy of a job as one document: what texts, pages, comparisons and other programs read.

An unknown value is null.
"""

from pathlib import Path

import msgspec

from emlio.energy.job.epoch_energy import EpochEnergy, Role
from emlio.energy.values.device import Domain, Method
from emlio.errors import ConfigError

__all__ = ["SCHEMA", "JobDevice", "JobFacts", "JobNode", "Report", "read_report"]

SCHEMA = 1
"""The schema version. It rises when a name or a unit changes its meaning."""


class JobDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that was recorded."""

    name: str
    domain: Domain
    source: str
    method: Method
    adds: bool
    note: str = ""


class JobNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that took part; an unknown value, as of a daemon's node, is empty or None.

    Attributes:
        node: its name.
        role: of the node.
        boot: the id of the recorded boot.
        processor: its name.
        cores: of all its processors.
        memory_bytes: of the machine.
        devices: those that were recorded.
    """

    node: str
    role: Role
    boot: str = ""
    processor: str = ""
    cores: int | None = None
    memory_bytes: int | None = None
    devices: tuple[JobDevice, ...] = ()


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that hold for all epochs.

    Attributes:
        command: and its arguments; empty where a loader began the recording.
        exit_status: of the command; None while it runs.
        begun_real_ns: when the command was started.
        version: of the program.
        whole: the command from start to end on the first node, without daemons' nodes. None where
            that is unknown, and where there are no epochs.
        nodes: all that took part.
        datasets: the fingerprints of the datasets.
        settings: of the job's first loader.
        partial: the titles of incomplete epochs.
        notes: what the figures lack, and what is unusual about them.
    """

    command: tuple[str, ...]
    exit_status: int | None
    begun_real_ns: int | None
    version: str
    whole: EpochEnergy | None
    nodes: tuple[JobNode, ...]
    datasets: tuple[str, ...]
    settings: dict[str, str]
    partial: tuple[str, ...]
    notes: tuple[str, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The document of a job; its epochs are in the order of time, or one of a command without any."""

    schema: int
    epochs: tuple[EpochEnergy, ...]
    job: JobFacts

    @property
    def whole(self) -> list[EpochEnergy]:
        """The epochs that were iterated from their beginning to their end."""
        return [one for one in self.epochs if one.title not in self.job.partial]

    def nodes(self, role: Role) -> list[JobNode]:
        """Return the nodes with this role."""
        return [one for one in self.job.nodes if one.role is role]

    @property
    def estimated(self) -> bool:
        """True if any device's energy is estimated."""
        return any(one.method is Method.ESTIMATED for node in self.job.nodes for one in node.devices)

    def json(self) -> bytes:
        """Return the document as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def read_report(path: Path) -> Report:
    """Read a document that was written as JSON."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Report)
    except OSError as error:
        raise ConfigError(f"{path}: the report cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not an energy report of a job: {error}") from error
    if found.schema != SCHEMA:
        raise ConfigError(f"{path} must be a report of version {SCHEMA}, got version {found.schema}")
    return found
