"""The outcome of a race: results with their runs and all that is needed to read them.

Covers: the values, reading a race's file. Does not cover: evaluating them
(emlio_bench.race.report.standing), running.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from emlio.errors import ConfigError
from emlio_bench.harness.page import RESULTS
from emlio_bench.harness.results import MEASURED, TURNS, Results, Turn, read_results
from emlio_bench.link.measurement.accuracy import LinkReport
from emlio_bench.race.records.corpus import Corpus
from emlio_bench.race.records.order import Epoch, Finished

__all__ = [
    "QUICK",
    "Contest",
    "Energy",
    "Entrant",
    "Family",
    "HostEnergy",
    "HostName",
    "InFlight",
    "Race",
    "Run",
    "read_run",
]

QUICK = ("quick", "True")
"""The setting of a race that only shows that everything works."""


HostName = Literal["compute", "storage"]
"""A host of the race: the one that trains, or the one that has the data."""

Family = Literal["ours", "files", "objects", "http", "service", "local", "limit"]
"""The groups of systems.

Five groups read over the link, each in its own way. The others read on the training host itself,
or only send bytes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A task that all entrants have to do.

    Attributes:
        name: short stable name, unique in a race.
        words: description for the report.
        corpus: the records.
        rtt_ns: round trip of the link.
        batch: records in a batch.
        epochs: number of epochs, one after the other, with one loader.
        step_ns: length of the consumer's step after each batch; 0 for a consumer that only reads.
        decode: whether pictures are decoded.
        decoders: decoding threads of DALI.
        limit_ns: time limit of an epoch; a longer epoch is cut.
        halves: whether every second shard is on the training host only.
        train: whether a model learns from the decoded pictures, in place of a step.
    """

    name: str
    words: str
    corpus: Corpus
    rtt_ns: int
    batch: int = 64
    epochs: int = 2
    step_ns: int = 0
    decode: bool = False
    decoders: int = 1
    limit_ns: int = 60_000_000_000
    halves: bool = False
    train: bool = False

    def __post_init__(self) -> None:
        if not self.name or self.batch < 1 or self.epochs < 1 or self.step_ns < 0 or self.limit_ns < 1:
            raise ConfigError(f"a contest must have a name, a batch, an epoch and a time limit, got {self}")
        if self.decoders < 1:
            raise ConfigError(f"a contest must have a decoding thread, got {self}")
        if self.train and not self.decode:
            raise ConfigError(f"a contest must decode pictures for a model that learns from them, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A system at one of its settings.

    Attributes:
        subject: name of the system.
        setting: name of the setting.
        words: meaning of the setting.
        family: group of systems that it is shown with.
        shuffles: description of its shuffling.
        exact: whether it claims to deliver each record once; None if it makes no claim.
        leaves_on_disk: description of the files that it leaves.
        versions: versions of its packages, for example "litdata 0.2.76".
        missing: reason why it could not run; None if it could.
    """

    subject: str
    setting: str
    words: str
    family: Family
    shuffles: str
    exact: bool | None
    leaves_on_disk: str
    versions: str = ""
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEnergy:
    """The energy of one domain of one host during a run.

    Attributes:
        host: the host.
        domain: the part of the host: cpu, dram or gpu.
        idle_joules: energy that the host would have used at rest in the same time.
        active_joules: energy above that.
        method: the method of both, with its error if it is an estimate.
    """

    host: HostName
    domain: str
    idle_joules: float
    active_joules: float
    method: str

    def __post_init__(self) -> None:
        if self.idle_joules < 0 or self.active_joules < 0:
            raise ConfigError(f"the energy of a host must be 0 or more, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """The energy of the machine during a run.

    Attributes:
        joules: energy of both hosts, which share this machine.
        method: source of the figure: names of counters, or "estimate" with its error.
        train_joules: part used during the consumer's steps; None if unknown.
        read_joules: the rest, used while the consumer waited for records. Decoding runs in
            parallel, where the consumer does not see it, and has no figure of its own.
        hosts: energy of each host by domain; empty if the power of the machine at rest is unknown.
    """

    joules: float
    method: str
    train_joules: float | None = None
    read_joules: float | None = None
    hosts: tuple[HostEnergy, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """The bytes that the link held on the way to training, during the epochs of a run.

    A packet is in transit for half of a round trip. TCP counts sent data until it is acknowledged,
    which gives about twice as much.

    Attributes:
        mean_bytes: mean over the time of all epochs.
        peak_bytes: maximum.
    """

    mean_bytes: int
    peak_bytes: int

    def __post_init__(self) -> None:
        if not 0 <= self.mean_bytes <= self.peak_bytes:
            raise ConfigError(f"the mean in flight must be in [0, the peak], got {self.mean_bytes}, {self.peak_bytes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Turn):
    """One run of one entrant in one contest.

    Attributes:
        contest: name of the contest.
        setting: see `Entrant`.
        epochs: epochs reported by the consumer; all but those marked as cut are complete.
        finished: final report of the consumer; None if there was none.
        storage_cpu_ns: processor time of all processes at the storage end while the consumer ran.
        to_training_bytes: bytes on the wire to training, with headers.
        to_storage_bytes: bytes on the wire to storage, with headers.
        dropped_packets: packets that the link dropped, apart from the requested loss.
        elapsed_ns: time from the start of the consumer's process to its end, with imports.
        energy: energy of the machine; None if unknown.
        in_flight: bytes in flight; None if they were not recorded.
        failure: description of a failure; None if there was none.
    """

    contest: str
    setting: str
    epochs: tuple[Epoch, ...] = ()
    finished: Finished | None = None
    storage_cpu_ns: int = 0
    to_training_bytes: int = 0
    to_storage_bytes: int = 0
    dropped_packets: int = 0
    elapsed_ns: int = 0
    energy: Energy | None = None
    in_flight: InFlight | None = None
    failure: str | None = None

    @property
    def cut(self) -> bool:
        """True if an epoch was cut at the contest's limit, so that its time is a lower bound."""
        return any(epoch.cut for epoch in self.epochs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Race(Results):
    """The results of a race.

    Attributes:
        contests: contests in the order of running.
        entrants: all entrants, also those that could not run.
        links: report of the link before each contest, with the contest's name.
        runs: runs in the order of their ends.
        no_energy: reason why energy was not recorded; empty if it was.
    """

    benchmark: str = "race"
    contests: tuple[Contest, ...]
    entrants: tuple[Entrant, ...]
    links: tuple[tuple[str, LinkReport], ...] = field(default=(), metadata=MEASURED)
    runs: tuple[Run, ...] = field(default=(), metadata=TURNS)
    no_energy: str = field(default="", metadata=MEASURED)

    @property
    def succeeded(self) -> bool:
        """True if a run did not fail."""
        return any(run.failure is None for run in self.runs)

    def __post_init__(self) -> None:
        Results.__post_init__(self)
        names = [contest.name for contest in self.contests]
        entrants = [(entrant.subject, entrant.setting) for entrant in self.entrants]
        if len(set(names)) != len(names) or len(set(entrants)) != len(entrants):
            raise ConfigError(f"a race must have each contest and entrant once, got {names} and {entrants}")


def read_run(place: Path) -> Results:
    """Read the results of any benchmark from a file, or those in the folder of a race or a report."""
    return read_results(place / RESULTS if place.is_dir() else place, {"race": Race})
