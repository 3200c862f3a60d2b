"""The outcome of `emlio-bench formats`: its results with their runs.

Covers: the values, the quantities of a run. Pure. Does not cover: measuring, tables
(emlio_bench.formats.report).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from emlio_bench.harness.results import MEASURED, TURNS, Results
from emlio_bench.harness.spread import Seen
from emlio_bench.link.measurement.accuracy import LinkReport
from emlio_bench.race.outcome import Contest, Entrant, Run

__all__ = [
    "BESIDE",
    "CPU_BOTH",
    "FIRST_BATCH",
    "FIRST_EPOCH",
    "ON_DISK",
    "RATE",
    "FormatsResults",
    "Measure",
    "Start",
    "epoch_seconds",
]

BESIDE: Final = "beside"
"""The contest between EMLIO and the formats' own loaders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The starts of a daemon on one format.

    Attributes:
        subject: name of the format.
        first_s: seconds of the first start, which indexes the folder.
        later_s: seconds of the start after it.
    """

    subject: str
    first_s: float
    later_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatsResults(Results):
    """The results of a run.

    Attributes:
        contests: contests in the order of running.
        entrants: all entrants, also those that could not run; the same name may be in several contests.
        links: report of the emulated link, if it was measured.
        starts: starts of a daemon by format.
        runs: runs in the order of their ends.
    """

    benchmark: str = "formats"
    contests: tuple[Contest, ...]
    entrants: tuple[Entrant, ...]
    links: tuple[LinkReport, ...] = field(default=(), metadata=MEASURED)
    starts: tuple[Start, ...] = field(default=(), metadata=MEASURED)
    runs: tuple[Run, ...] = field(default=(), metadata=TURNS)

    def of(self, contest: Contest, subject: str) -> list[Run]:
        """Return the runs of a subject in a contest that began an epoch, by round."""
        return [
            run
            for run in sorted(self.runs, key=lambda one: one.round)
            if run.contest == contest.name and run.subject == subject and run.epochs
        ]

    def subjects(self, contest: Contest) -> list[str]:
        """Return the subjects of a contest in the order of the entrants."""
        ran = {run.subject for run in self.runs if run.contest == contest.name}
        return [name for name in dict.fromkeys(entrant.subject for entrant in self.entrants) if name in ran]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A quantity of a run.

    Attributes:
        name: name with unit, for tables.
        unit: unit of the value.
        seen: returns the value of a run; None if it is unknown.
    """

    name: str
    unit: str
    seen: Callable[[Run], Seen | None]

    def of(self, runs: Iterable[Run]) -> list[Seen]:
        """Return the known values of some runs."""
        return [one for run in runs if (one := self.seen(run)) is not None]


def epoch_seconds(run: Run) -> float:
    """Return the length of a run's first epoch, or of its part before it was cut."""
    epoch = run.epochs[0]
    return (epoch.ended_ns - epoch.begun_ns) / 1e9


def _first_epoch(run: Run) -> Seen:
    return Seen(value=epoch_seconds(run), beyond=">" if run.cut else "")


def _first_batch(run: Run) -> Seen | None:
    epoch = run.epochs[0]
    return Seen(value=(epoch.first_batch_ns - epoch.begun_ns) / 1e6) if epoch.records else None


def _rate(run: Run) -> Seen:
    epoch = run.epochs[0]
    return Seen(value=epoch.records * 1e9 / max(epoch.ended_ns - epoch.begun_ns, 1))


def _storage(run: Run) -> Seen | None:
    return _for_each_gb(run, run.storage_cpu_ns)


def _training(run: Run) -> Seen | None:
    return None if run.finished is None else _for_each_gb(run, run.finished.cpu_ns)


def _for_each_gb(run: Run, cpu_ns: int) -> Seen | None:
    payload_bytes = run.epochs[0].payload_bytes
    return Seen(value=cpu_ns / payload_bytes) if payload_bytes else None


def _on_disk(run: Run) -> Seen | None:
    return None if run.finished is None else Seen(value=run.finished.cache_bytes / 1e6)


FIRST_EPOCH: Final = Measure(name="first epoch, s", unit="s", seen=_first_epoch)
FIRST_BATCH: Final = Measure(name="first batch, ms", unit="ms", seen=_first_batch)
RATE: Final = Measure(name="records/s", unit="records/s", seen=_rate)
CPU_BOTH: Final = (
    Measure(name="storage, CPU s/GB", unit="CPU s/GB", seen=_storage),
    Measure(name="training, CPU s/GB", unit="CPU s/GB", seen=_training),
)
ON_DISK: Final = Measure(name="on the client's disk, MB", unit="MB", seen=_on_disk)
