"""The storage side of a race, as its runs use it: another machine, or a namespace of this one."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from emlio_bench.harness.contest import Corpus
from emlio_bench.link.accuracy import LinkReport
from emlio_bench.link.contract import LinkEnd, Stretch
from emlio_bench.link.spec import LinkSpec
from emlio_bench.race.run.host_energy import Energy
from emlio_bench.race.systems.system import System

__all__ = ["EnergyMeter", "Serving", "StorageSide", "Traffic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The traffic between both hosts during a run.

    Attributes:
        wire_bytes: bytes on the wire, both ways, with headers.
        dropped_packets: packets that the link dropped.
        held: bytes in transit to training over time; empty if they were not recorded.
    """

    wire_bytes: int = 0
    dropped_packets: int = 0
    held: tuple[Stretch, ...] = ()


class Serving(Protocol):
    """A system whose servers run at the storage side, for one consumer."""

    @property
    def url(self) -> str:
        """The URL or path of the data for the consumer."""
        ...

    @property
    def here(self) -> str:
        """The local folder of the shards that the storage does not have; empty if it has all."""
        ...

    @property
    def training(self) -> LinkEnd:
        """The end of the link where the consumer runs."""
        ...

    def begin(self) -> None:
        """Start the meters."""
        ...

    def cpu_ns(self) -> int:
        """Return the processor time of the servers since `begin`."""
        ...

    def traffic(self) -> Traffic:
        """Return the traffic since `begin`."""
        ...


class StorageSide(Protocol):
    """The host that has the data, and the way to it. Used by one thread."""

    def measure(self, spec: LinkSpec) -> LinkReport:
        """Measure the link before anything else runs over it."""
        ...

    def prepare(self, system: System, corpus: Corpus, forms: Path) -> Path:
        """Convert the records to the system's own format, once, where the system reads them.

        Args:
            system: the system.
            corpus: the records.
            forms: folder of all formats on this machine.
        """
        ...

    def serving(
        self, system: System, prepared: Path, *, spec: LinkSpec, halves: bool, corpus: Corpus, folder: Path
    ) -> AbstractContextManager[Serving]:
        """Start a system's servers over a fresh link, with the data in memory.

        Args:
            system: the system.
            prepared: result of `prepare`.
            spec: specification of the link.
            halves: whether every second shard is on the training host only.
            corpus: the records.
            folder: empty local folder of this run.
        """
        ...


class EnergyMeter(Protocol):
    """The energy of both hosts."""

    def used(
        self,
        from_ns: int,
        to_ns: int,
        *,
        steps: Iterable[tuple[int, int]] = (),
        compute_cpu_ns: int | None = None,
        storage_cpu_ns: int | None = None,
    ) -> Energy | None:
        """Return the energy between two past times of CLOCK_MONOTONIC; None if it is unknown.

        Args:
            from_ns: start, after the start of the meter.
            to_ns: end, later than the start.
            steps: start and end of each step of the consumer.
            compute_cpu_ns: processor time of the consumer's processes; None if unknown.
            storage_cpu_ns: processor time of the server's processes; None if unknown.
        """
        ...
