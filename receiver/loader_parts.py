"""What a loader is made of: made together, closed together.

Covers: the order in which its parts are made and closed, and how long users' functions are waited for. Does not cover: when
(emlio.receiver.loader, emlio.receiver.ending), what each part does to end.
"""

import os
from dataclasses import dataclass
from typing import Self

from emlio.clock import SystemClock
from emlio.receiver.bad_records import BadRecordPolicy
from emlio.receiver.config import LoaderConfig
from emlio.receiver.engine import Engine
from emlio.receiver.loader_energy import LoaderEnergy
from emlio.receiver.patience import PatientBatches
from emlio.receiver.prefetch import Prefetch
from emlio.receiver.workshop import BatchOptions, Workshop

__all__ = ["LoaderParts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderParts:
    """The parts of one loader, and the process that made them.

    Attributes:
        workshop: makes batches.
        prefetch: keeps them until the user asks.
        engine: receives records.
        energy: notes what epochs use; None where nobody wants to know.
        batches: the user's end of `prefetch`.
        pid: the process.
    """

    workshop: Workshop
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
        """Make them; nothing is begun yet.

        Args:
            options: about batches.
            policy: what becomes of bad records.
            config: what else the loader was told.
            energy: as the attribute.
            progress: whether a line is shown while shards of this host are indexed.
        """
        work = energy.work if energy is not None else None
        workshop = Workshop(options, policy, config, work)
        prefetch = Prefetch(workshop.maker)
        try:
            engine = Engine(config, prefetch, SystemClock(), progress=progress)
            try:
                batches = PatientBatches(prefetch, engine, config.timeout_ns, work)
                return cls(
                    workshop=workshop, prefetch=prefetch, engine=engine, energy=energy, batches=batches, pid=os.getpid()
                )
            except BaseException:
                engine.close()
                raise
        except BaseException:
            prefetch.close()
            workshop.close()
            raise

    def close(self, patience_s: float) -> None:
        """Close them, in the process that made them; after an interrupt it may be called again and goes on.

        Args:
            patience_s: how long users' functions that run are waited for.
        """
        # In a forked child the threads do not exist; waiting for them would never end.
        if os.getpid() == self.pid:
            self.prefetch.close(patience_s)
            self.workshop.close()
            if self.energy is not None:
                self.energy.close()
            self.engine.close()
