"""The hooks by which a loader is observed.

Covers: the hooks, the facts of a loader that was started, an observer that does nothing. Does not
cover: recording energy (emlio.receiver.energy.observer).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from emlio.energy.job.epoch_energy import EpochEnergy
from emlio.energy.job.journal import StorageEnergy
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.timing.observers import (
    UNOBSERVED_PASS,
    UNOBSERVED_WORK,
    EpochObserver,
    PassObserver,
    WorkObserver,
)

__all__ = ["LoaderObserver", "StartedLoader", "Unobserved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedLoader:
    """A loader that receives records.

    Attributes:
        config: its configuration.
        dataset: the fingerprint of its dataset.
        protection: the protections of records in transit.
        ask: returns the energy of the daemons' nodes between two times of this process's
            CLOCK_MONOTONIC; the third argument is the longest wait. All are in nanoseconds.
    """

    config: LoaderConfig
    dataset: str
    protection: str
    ask: Callable[[int, int, int], tuple[StorageEnergy, ...]]


class LoaderObserver(EpochObserver, Protocol):
    """Told of the life of one loader. Only `work` and `closed` may be used by other threads."""

    @property
    def work(self) -> WorkObserver:
        """Told when threads make batches."""
        ...

    def started(self, loader: StartedLoader) -> None:
        """The loader receives records."""
        ...

    def figures(self) -> tuple[EpochEnergy, ...]:
        """Return the energy of ended epochs."""
        ...

    def closed(self) -> None:
        """The loader is closed; daemons can still be asked. A second call continues an interrupted one."""
        ...


class Unobserved:
    """Does nothing. See `LoaderObserver`."""

    work = UNOBSERVED_WORK

    def started(self, loader: StartedLoader) -> None:
        """See `LoaderObserver`."""

    def epoch_begun(self, epoch: int, *, resumes: bool) -> PassObserver:
        """See `EpochObserver`."""
        return UNOBSERVED_PASS

    def epoch_ended(self, *, whole: bool) -> None:
        """See `EpochObserver`."""

    def figures(self) -> tuple[EpochEnergy, ...]:
        """See `LoaderObserver`."""
        return ()

    def closed(self) -> None:
        """See `LoaderObserver`."""
