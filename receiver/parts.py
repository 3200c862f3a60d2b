"""The parts of a loader, made together and closed together.

Covers: the order in which parts are made and closed, and how long users' functions are waited for.
Does not cover: when this happens (emlio.receiver.loader, emlio.receiver.ending), how each part
closes.
"""

import os
from dataclasses import dataclass
from typing import Self

from emlio.clock import SystemClock
from emlio.receiver.batch_factory import BatchFactory, BatchOptions
from emlio.receiver.batches.prefetch import Prefetch
from emlio.receiver.energy.observer import LoaderEnergy
from emlio.receiver.engine.engine import Engine
from emlio.receiver.patience import PatientBatches
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.setup.config import LoaderConfig

__all__ = ["LoaderParts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderParts:
    """The parts of one loader, and the process that made them.

    Attributes:
        factory: makes batches.
        prefetch: keeps them until the user asks.
        engine: receives records.
        energy: records the energy of epochs; None if this is not wanted.
        batches: the user's end of `prefetch`.
        pid: the process that made the parts.
    """

    factory: BatchFactory
    prefetch: Prefetch
    engine: Engine
    energy: LoaderEnergy | None
    batches: PatientBatches
    pid: int

    @classmethod
    def make(
        cls,
        options: BatchOptions,
        policy: BadRecordPolicy,
        config: LoaderConfig,
        energy: LoaderEnergy | None,
        *,
        progress: bool,
    ) -> Self:
        """Make the parts; nothing is started yet.

        Args:
            options: the options for batches.
            policy: how bad records are handled.
            config: the loader's configuration.
            energy: as the attribute.
            progress: whether a line is shown while shards of this host are indexed.
        """
        work = energy.work if energy is not None else None
        factory = BatchFactory(options, policy, config, work)
        prefetch = Prefetch(factory.maker)
        try:
            engine = Engine(config, prefetch, SystemClock(), progress=progress)
            try:
                batches = PatientBatches(prefetch, engine, config.recovery.timeout_ns, work)
                return cls(
                    factory=factory, prefetch=prefetch, engine=engine, energy=energy, batches=batches, pid=os.getpid()
                )
            except BaseException:
                engine.close()
                raise
        except BaseException:
            prefetch.close()
            factory.close()
            raise

    def close(self, patience_s: float) -> None:
        """Close the parts, in the process that made them.

        After an interrupt, calling again continues.

        Args:
            patience_s: how long to wait for users' functions that are running.
        """
        # In a forked child the threads do not exist; waiting for them would never end.
        if os.getpid() == self.pid:
            self.prefetch.close(patience_s)
            self.factory.close()
            if self.energy is not None:
                self.energy.close()
            self.engine.close()
