"""The energy of two hosts that are two machines, each by its own recorder.

Covers: translating times to the storage's clock, adding up both machines. Does not cover: recording
(emlio_bench.race.run.joules).
"""

import time
from collections.abc import Iterable
from typing import Final

from emlio_bench.race.outcome import Energy
from emlio_bench.race.run.joules import Joules
from emlio_bench.race.storage.dialogue import Dialogue
from emlio_bench.race.storage.messages import AskClock, AskUsed, StartEnergy, Used

__all__ = ["TwoHosts", "added", "clock_offset_ns"]

_TRIES: Final = 15
_START_S: Final = 120.0


class TwoHosts:
    """See `EnergyMeter`. The hosts have different clocks; their offset is measured for each run."""

    def __init__(self, own: Joules, dialogue: Dialogue) -> None:
        """Start the recorder of the storage host.

        Args:
            own: the recorder of this host, which is at rest meanwhile.
            dialogue: connection to the agent.

        Raises:
            TransportError: the storage host cannot record.
        """
        self._own = own
        self._dialogue = dialogue
        self.storage_busy = dialogue.ask(StartEnergy(), float, _START_S)
        """The share of the storage's processors that was busy at rest."""

    def used(
        self,
        from_ns: int,
        to_ns: int,
        *,
        steps: Iterable[tuple[int, int]] = (),
        compute_cpu_ns: int | None = None,
        storage_cpu_ns: int | None = None,
    ) -> Energy | None:
        """See `EnergyMeter`. Processor time divides nothing here, since each host is a machine."""
        known = list(steps)
        own = self._own.used(from_ns, to_ns, steps=known, whole="compute")
        offset_ns = clock_offset_ns(self._dialogue)
        theirs = self._dialogue.ask(
            AskUsed(
                from_ns=from_ns + offset_ns,
                to_ns=to_ns + offset_ns,
                steps=[(start + offset_ns, end + offset_ns) for start, end in known],
            ),
            Used,
        )
        return added(own, theirs.energy)


def clock_offset_ns(dialogue: Dialogue) -> int:
    """Return the storage's CLOCK_MONOTONIC minus this host's, by the quickest of some requests."""
    best: tuple[int, int] | None = None
    for _ in range(_TRIES):
        asked_ns = time.monotonic_ns()
        theirs_ns = dialogue.ask(AskClock(), int)
        answered_ns = time.monotonic_ns()
        took_ns = answered_ns - asked_ns
        if best is None or took_ns < best[0]:
            best = took_ns, theirs_ns - (asked_ns + answered_ns) // 2
    assert best is not None
    return best[1]


def added(compute: Energy | None, storage: Energy | None) -> Energy | None:
    """Return the energy of both hosts; None if that of one is unknown."""
    if compute is None or storage is None:
        return None
    splits = [(one.train_joules, one.read_joules) for one in (compute, storage)]
    train = [train for train, _ in splits if train is not None]
    read = [read for _, read in splits if read is not None]
    return Energy(
        joules=compute.joules + storage.joules,
        method=f"compute {compute.method}, storage {storage.method}",
        train_joules=sum(train) if len(train) == 2 else None,
        read_joules=sum(read) if len(read) == 2 else None,
        hosts=(*compute.hosts, *storage.hosts) if compute.hosts and storage.hosts else (),
    )
