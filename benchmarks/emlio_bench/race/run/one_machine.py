"""Both hosts of a race on this machine, with a link of its own for each run."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from emlio_bench.harness.contest import Corpus
from emlio_bench.harness.data import read_through
from emlio_bench.link.accuracy import LinkReport, measure_link
from emlio_bench.link.choice import open_link
from emlio_bench.link.contract import Link, LinkEnd, LinkKind
from emlio_bench.link.iperf import find_iperf
from emlio_bench.link.spec import LinkSpec
from emlio_bench.race.records.halves import in_halves
from emlio_bench.race.run.host_time import children, trees_cpu_ns
from emlio_bench.race.run.sides import Serving, Traffic
from emlio_bench.race.systems.system import System

__all__ = ["OneMachine", "warm"]

_STREAMS: Final = (1, 8, 16)


class OneMachine:
    """See `StorageSide`."""

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

    def measure(self, spec: LinkSpec) -> LinkReport:
        """See `StorageSide`."""
        with self._make(spec, self._kind) as link:
            return self._look_at(link)

    def prepare(self, system: System, corpus: Corpus, forms: Path) -> Path:
        """See `StorageSide`."""
        return system.prepare(corpus, forms)

    @contextmanager
    def serving(
        self, system: System, prepared: Path, *, spec: LinkSpec, halves: bool, corpus: Corpus, folder: Path
    ) -> Generator[Serving, None, None]:
        """See `StorageSide`."""
        warm(prepared)
        parts = in_halves(prepared) if halves else None
        with self._make(spec, self._kind) as link:
            others = children()
            with system.serve(prepared if parts is None else parts.storage, link) as url:
                here = "" if parts is None else str(parts.training)
                yield _Serving(url, here, link, children() - others - set(link.pids))


class _Serving:
    """See `Serving`."""

    def __init__(self, url: str, here: str, link: Link, servers: frozenset[int]) -> None:
        self.url = url
        self.here = here
        self.training: LinkEnd = link.training
        self._link = link
        self._servers = servers

    def begin(self) -> None:
        """See `Serving`."""
        self._link.held()  # the first call starts the recording
        self._counts = self._link.counts()
        self._begun_cpu_ns = trees_cpu_ns(self._servers)

    def cpu_ns(self) -> int:
        """See `Serving`."""
        return trees_cpu_ns(self._servers) - self._begun_cpu_ns

    def traffic(self) -> Traffic:
        """See `Serving`."""
        before, after = self._counts, self._link.counts()
        pairs = ((after.to_training, before.to_training), (after.to_storage, before.to_storage))
        return Traffic(
            wire_bytes=sum(now.wire_bytes - earlier.wire_bytes for now, earlier in pairs),
            dropped_packets=sum(now.dropped_packets - earlier.dropped_packets for now, earlier in pairs),
            held=self._link.held().to_training,
        )


def warm(prepared: Path) -> None:
    """Read all files below into the page cache: the link is measured, not the storage's disks."""
    read_through([prepared] if prepared.is_file() else [path for path in prepared.rglob("*") if path.is_file()])
