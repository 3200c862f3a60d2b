"""What came out of a race: raw runs with the world they come from, immutable.

Covers: the values. Does not cover: their files (emlio.benchmarks.race.race_folder), making sense of them
(emlio.benchmarks.race.standing), running.
"""

from dataclasses import dataclass
from typing import Final

from emlio.benchmarks.environment import Environment
from emlio.benchmarks.link.accuracy import LinkReport
from emlio.benchmarks.race.corpus import Corpus
from emlio.benchmarks.race.order import Epoch, Finished
from emlio.benchmarks.race.rival import Family
from emlio.errors import ConfigError

__all__ = ["SCHEMA", "Contest", "Energy", "Entrant", "InFlight", "Race", "Run"]

SCHEMA: Final = 2
"""Raised when a field is added or changes its meaning. Since 2 runs say what was on its way, links what they take themselves."""

_READABLE: Final = (1, SCHEMA)
"""What a race of schema 1 does not say is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """What everybody has to do.

    Attributes:
        name: short, stable, one of a kind in a race.
        words: for the report.
        corpus: the records.
        rtt_ns: of the link.
        rate_bytes_per_s: of the link; None for as fast as can be.
        batch: records in a batch.
        epochs: one after the other, by one loader.
        step_ns: how long the consumer computes after each batch; 0 for a consumer that only reads.
        decode: whether pictures are decoded.
        limit_ns: how long a first epoch may take; one that is longer is cut there.
        halves: whether every second shard lies on the training host, and nowhere else.
    """

    name: str
    words: str
    corpus: Corpus
    rtt_ns: int
    rate_bytes_per_s: int | None = None
    batch: int = 64
    epochs: int = 2
    step_ns: int = 0
    decode: bool = False
    limit_ns: int = 60_000_000_000
    halves: bool = False

    def __post_init__(self) -> None:
        if not self.name or self.batch < 1 or self.epochs < 1 or self.step_ns < 0 or self.limit_ns < 1:
            raise ConfigError(f"a contest must have a name, a batch, an epoch and a time limit, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A system at one of its settings.

    Attributes:
        subject: the system.
        setting: which of its settings.
        words: what that means.
        family: beside which others it is shown.
        shuffles: in words.
        exact: whether it says that each record comes once; None where it does not say.
        leaves_on_disk: in words.
        versions: of what it consists of, for example "litdata 0.2.76".
        missing: why it could not take part; None where it could.
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
class Energy:
    """What the machine used during a run.

    Attributes:
        joules: of both hosts, which share this machine.
        method: how they were found out: names of counters, or "estimate" with its error.
        train_joules: what of it was used while the consumer's steps ran; None where nobody told it apart.
        read_joules: the rest, while records were waited for. What decodes them works beside, where no consumer sees it, and is
            not told apart.
    """

    joules: float
    method: str
    train_joules: float | None = None
    read_joules: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """What the link held on its way to training during the epochs of a run.

    A packet is on its way for half of a round trip. TCP counts what it sends until it hears of it, about twice as much.

    Attributes:
        mean_bytes: over the time of all epochs.
        peak_bytes: the most at any moment.
    """

    mean_bytes: int
    peak_bytes: int

    def __post_init__(self) -> None:
        if not 0 <= self.mean_bytes <= self.peak_bytes:
            raise ConfigError(f"the mean in flight must be in [0, the peak], got {self.mean_bytes}, {self.peak_bytes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One entrant in one contest, once.

    Attributes:
        contest: its name.
        subject: see `Entrant`.
        setting: likewise.
        round: runs of one contest and round were made one after the other and may be compared.
        place: position in the round.
        epochs: what the consumer said; all but those marked as cut are whole.
        finished: what the consumer said at its end; None where it did not come to it.
        storage_cpu_ns: processor time of all processes at the storage's end while the consumer ran.
        to_training_bytes: on the wire, headers counted.
        to_storage_bytes: likewise.
        dropped_packets: that the link dropped without having been asked to.
        elapsed_ns: from the start of the consumer's process to its end, imports counted.
        energy: None where there is nothing to say.
        in_flight: None where nobody gauged it.
        failure: what went wrong, in words; None where nothing did.
    """

    contest: str
    subject: str
    setting: str
    round: int
    place: int
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
        """Whether an epoch was ended at the contest's limit, so that its time is a lower bound."""
        return any(epoch.cut for epoch in self.epochs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """All of it.

    Attributes:
        environment: where it ran.
        settings: what it was told, as text; only races that were told the same go on.
        begun: when, as an ISO date and time in UTC.
        contests: in the order they were run.
        entrants: all, also those that could not take part.
        links: as they were found before each contest, by its name.
        runs: in the order they ended.
        schema: of this value.
    """

    environment: Environment
    settings: tuple[tuple[str, str], ...]
    begun: str
    contests: tuple[Contest, ...]
    entrants: tuple[Entrant, ...]
    links: tuple[tuple[str, LinkReport], ...] = ()
    runs: tuple[Run, ...] = ()
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.schema not in _READABLE:
            raise ConfigError(f"a race must have schema {' or '.join(map(str, _READABLE))}, got {self.schema}")
        names = [contest.name for contest in self.contests]
        entrants = [(entrant.subject, entrant.setting) for entrant in self.entrants]
        if len(set(names)) != len(names) or len(set(entrants)) != len(entrants):
            raise ConfigError(f"a race must have each contest and entrant once, got {names} and {entrants}")
