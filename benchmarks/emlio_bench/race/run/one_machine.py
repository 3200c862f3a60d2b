"""The storage side of a run: what runs ask of it, and the side that is a namespace of this machine.

Of this machine each run has a link of its own. The other side is emlio_bench.race.storage.remote.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import psutil

from emlio_bench.harness.contest import Corpus
from emlio_bench.harness.data import read_through
from emlio_bench.harness.meter import process_cpu_ns
from emlio_bench.link.accuracy import LinkReport, measure_link
from emlio_bench.link.choice import open_link
from emlio_bench.link.contract import Link, LinkEnd, LinkKind, LinkSpec, Stretch
from emlio_bench.link.iperf import find_iperf
from emlio_bench.race.records.halves import in_halves
from emlio_bench.race.systems.system import System

__all__ = ["OneMachine", "Serving", "StorageSide", "Traffic", "children", "trees_cpu_ns", "warm"]

_STREAMS: Final = (1, 8, 16)


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


class Serving:
    """A system whose servers run at the storage side, for one consumer.

    Attributes:
        url: URL or path of the data for the consumer.
        here: local folder of the shards that the storage does not have; empty if it has all.
        training: end of the link where the consumer runs.
    """

    def __init__(
        self,
        url: str,
        here: str,
        training: LinkEnd,
        *,
        servers_cpu_ns: Callable[[], int],
        wire: Callable[[], tuple[int, int]],
        held: Callable[[], tuple[Stretch, ...]] = tuple,
    ) -> None:
        """Describe it.

        Args:
            url: see above.
            here: see above.
            training: see above.
            servers_cpu_ns: returns the processor time of the servers so far.
            wire: returns bytes on the wire and dropped packets so far.
            held: returns what was in transit since the last call; the first call starts the recording.
        """
        self.url = url
        self.here = here
        self.training = training
        self._servers_cpu_ns = servers_cpu_ns
        self._wire = wire
        self._held = held

    def begin(self) -> None:
        """Start the meters."""
        self._held()
        self._begun_wire = self._wire()
        self._begun_cpu_ns = self._servers_cpu_ns()

    def cpu_ns(self) -> int:
        """Return the processor time of the servers since `begin`."""
        return self._servers_cpu_ns() - self._begun_cpu_ns

    def traffic(self) -> Traffic:
        """Return the traffic since `begin`."""
        (wire_bytes, dropped), (bytes_before, dropped_before) = self._wire(), self._begun_wire
        return Traffic(
            wire_bytes=wire_bytes - bytes_before, dropped_packets=dropped - dropped_before, held=self._held()
        )


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


class OneMachine:
    """The side that is this machine."""

    def __init__(
        self,
        kind: LinkKind,
        look_at: Callable[[Link], LinkReport] | None = None,
        *,
        make: Callable[[LinkSpec, LinkKind], Link] = open_link,
    ) -> None:
        """Create the side; no link is made yet.

        Args:
            kind: implementation of the links.
            look_at: measures a link; None for `measure_link`.
            make: makes a link of this kind.
        """
        self._kind = kind
        self._make = make
        self._look_at = look_at or partial(measure_link, streams=_STREAMS, iperf=find_iperf())
        self._known: dict[LinkSpec, LinkReport] = {}

    def measure(self, spec: LinkSpec) -> LinkReport:
        """Measure such a link once: all links of one specification are alike."""
        if spec not in self._known:
            with self._make(spec, self._kind) as link:
                self._known[spec] = self._look_at(link)
        return self._known[spec]

    def prepare(self, system: System, corpus: Corpus, forms: Path) -> Path:
        """Convert the records here."""
        return system.prepare(corpus, forms)

    @contextmanager
    def serving(
        self, system: System, prepared: Path, *, spec: LinkSpec, halves: bool, corpus: Corpus, folder: Path
    ) -> Generator[Serving, None, None]:
        """Serve at the storage end of a new link."""
        warm(prepared)
        parts = in_halves(prepared) if halves else None
        with self._make(spec, self._kind) as link:
            others = children()
            with system.serve(prepared if parts is None else parts.storage, link) as url:
                servers = children() - others - set(link.pids)

                def wire() -> tuple[int, int]:
                    both = link.counts().to_training, link.counts().to_storage
                    return sum(one.wire_bytes for one in both), sum(one.dropped_packets for one in both)

                yield Serving(
                    url,
                    "" if parts is None else str(parts.training),
                    link.training,
                    servers_cpu_ns=lambda: trees_cpu_ns(servers),
                    wire=wire,
                    held=lambda: link.held().to_training,
                )


def warm(prepared: Path) -> None:
    """Read all files below into the page cache: the link is measured, not the storage's disks."""
    read_through([prepared] if prepared.is_file() else [path for path in prepared.rglob("*") if path.is_file()])


def children() -> frozenset[int]:
    """Return the ids of this process's living children."""
    return frozenset(child.pid for child in psutil.Process().children())


def trees_cpu_ns(roots: Iterable[int]) -> int:
    """Return the user and system time of these processes and all their descendants.

    Of processes that end meanwhile, the available part is counted. A child that ended counts if its
    parent is alive and has waited for it.

    Args:
        roots: process ids, none a descendant of another.
    """
    total_ns = 0
    for root in roots:
        try:
            process = psutil.Process(root)
            tree = [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
        for one in tree:
            try:
                ended = one.cpu_times()  # of its children, in ticks of 10 ms; the process itself is counted exactly
                total_ns += process_cpu_ns(one.pid) + round((ended.children_user + ended.children_system) * 1e9)
            except (psutil.NoSuchProcess, OSError):
                continue
    return total_ns
