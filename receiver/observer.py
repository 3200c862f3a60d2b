"""The hooks by which a loader is observed.

Does not cover: recording energy (emlio.receiver.energy.observer).
"""

from collections.abc import Callable

import msgspec

from emlio.clocks.fit import ClockFit
from emlio.energy.job.epoch_energy import EpochEnergy
from emlio.energy.job.journal import StorageEnergy
from emlio.receiver.machine.surroundings import Came
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.timing.observers import UNOBSERVED_WORK, EpochObserver, WorkObserver

__all__ = ["LoaderObserver", "StartedLoader"]


class StartedLoader(msgspec.Struct, frozen=True, kw_only=True):
    """A loader that receives records.

    Attributes:
        config: its configuration.
        dataset: the fingerprint of its dataset.
        protection: the protections of records in transit.
        ask: returns the energy of the daemons' nodes between two times of this process's
            CLOCK_MONOTONIC; the third argument is the longest wait. All are in nanoseconds.
        clocks: returns the addresses of daemons, and their clocks against this process's, by the numbers of their streams.
    """

    config: LoaderConfig
    dataset: str
    protection: str
    ask: Callable[[int, int, int], tuple[StorageEnergy, ...]]
    clocks: Callable[[], dict[int, tuple[str, ClockFit]]] = dict


class LoaderObserver(EpochObserver):
    """Told of the life of one loader; this one does nothing. Only `work` and `closed` may be used by other threads.

    Attributes:
        work: told when threads make batches.
        came: told of messages, see `Surroundings`; None if they are not traced.
    """

    work: WorkObserver = UNOBSERVED_WORK
    came: Came | None = None

    def started(self, loader: StartedLoader) -> None:
        """The loader receives records."""

    def figures(self) -> tuple[EpochEnergy, ...]:
        """Return the energy of ended epochs."""
        return ()

    def closed(self) -> None:
        """The loader is closed; daemons can still be asked. A second call continues an interrupted one."""
