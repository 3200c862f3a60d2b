"""Where runs take place: two hosts with copies of the dataset, disks that can be full or fail, clocks that can jump.

Covers: building it for one run, or for many whose daemons live on from one to the next; mending it between them; what the
daemons take of the memory. Does not cover: what happens on it (tests.e2e.chaos.run).
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from emlio_testing.disk_faults import DiskFaults
from tests.e2e.chaos.disk import SmallDisk
from tests.e2e.chaos.faults import Fault, Kind
from tests.e2e.chaos.host import Host
from tests.e2e.chaos.known import Known, copy_for
from tests.e2e.chaos.wall_clock import WallClock

__all__ = ["Memory", "Stage"]

_HOSTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a daemon holds after a run.

    Attributes:
        host: which.
        runs: how many it has lived through.
        resident_bytes, threads, descriptors: of its process.
    """

    host: int
    runs: int
    resident_bytes: int
    threads: int
    descriptors: int


class Stage:
    """See the module. Its daemons serve once it is entered.

    Attributes:
        hosts: the two.
        clocks: those of the hosts and that of the ranks; none where no clock jumps.
        disks: by the host's number.
        reads: what each host's transfers past the page cache meet; none where daemons read through it.
    """

    def __init__(
        self,
        known: Known,
        folder: Path,
        *,
        full_disks: Collection[int],
        jumping_clocks: bool,
        directly: bool,
        damaged: Mapping[int, Collection[str]],
    ) -> None:
        """See the class.

        Args:
            known: the dataset.
            folder: where all of it lies; it is made.
            full_disks: hosts whose daemon's disk can be full.
            jumping_clocks: whether clocks can jump.
            directly: whether daemons read past the page cache.
            damaged: for each host the shards of its copy that may be written to.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._known = known
        self._damaged = damaged
        self._stack = ExitStack()
        tools, clocks, reads = known.folder.parent, range(_HOSTS + 1), range(_HOSTS)
        self.clocks = [WallClock(tools, folder / f"clock-{number}") for number in clocks if jumping_clocks]
        self.reads = [DiskFaults(tools, folder / f"reads-{number}") for number in reads if directly]
        self.disks = {number: SmallDisk(folder / f"disk-{number}") for number in full_disks}
        for disk in self.disks.values():
            self._stack.callback(disk.close)
        self.hosts = [self._host(folder, number) for number in range(_HOSTS)]
        for host in self.hosts:
            self._stack.callback(host.close)

    @classmethod
    def for_schedule(cls, known: Known, folder: Path, schedule: Sequence[Fault]) -> Self:
        """One that has what these faults need."""
        damaged: dict[int, set[str]] = {number: set() for number in range(_HOSTS)}
        for fault in schedule:
            if fault.kind.of_shard:
                damaged[fault.host].add(known.shards[fault.amount % len(known.shards)])
        return cls(
            known,
            folder,
            full_disks={fault.host for fault in schedule if fault.kind is Kind.DISK_FULL},
            jumping_clocks=any(fault.kind is Kind.CLOCK_JUMP for fault in schedule),
            directly=any(fault.kind.of_direct_reading for fault in schedule),
            damaged=damaged,
        )

    @classmethod
    def for_kinds(cls, known: Known, folder: Path, kinds: Collection[Kind]) -> Self:
        """One for many runs with any faults of these kinds."""
        hosts = range(_HOSTS)
        return cls(
            known,
            folder,
            full_disks=hosts if Kind.DISK_FULL in kinds else (),
            jumping_clocks=Kind.CLOCK_JUMP in kinds,
            directly=any(kind.of_direct_reading for kind in kinds),
            damaged={number: known.shards if any(kind.of_shard for kind in kinds) else () for number in hosts},
        )

    def _host(self, folder: Path, number: int) -> Host:
        data, state_folder = folder / f"data-{number}", folder / f"disk-{number}"
        copy_for(self._known, data, self._damaged[number])
        state_folder.mkdir(exist_ok=True)
        seen = [each[number].environment for each in (self.clocks, self.reads) if each]
        environment = {name: value for variables in seen for name, value in variables.items()}
        if seen:
            environment["LD_PRELOAD"] = ":".join(variables["LD_PRELOAD"] for variables in seen)
        return Host(number, data, state_folder, environment, "direct" if self.reads else "auto")

    def prepare(self) -> None:
        """Mend what runs before left: both daemons serve whole copies, disks are empty, clocks right.

        Raises:
            TimeoutError: a daemon does not start.
        """
        for clock in self.clocks:
            clock.jump(0)
        for reads in self.reads:
            reads.mend()
        for disk in self.disks.values():
            disk.empty()
        for host in self.hosts:
            host.begin_run()
            if host.damaged:
                host.drain()
                copy_for(self._known, host.data, self._damaged[host.number])
                host.damaged = False
        down = [host for host in self.hosts if host.process is None]
        with ThreadPoolExecutor(_HOSTS) as threads:
            list(threads.map(Host.start, down))

    def memory(self) -> list[Memory]:
        """What each daemon that is there holds."""
        found: list[Memory] = []
        for host in self.hosts:
            if host.process is not None:
                seen = psutil.Process(host.process.pid)
                found.append(
                    Memory(
                        host=host.number,
                        runs=host.runs,
                        resident_bytes=seen.memory_info().rss,
                        threads=seen.num_threads(),
                        descriptors=seen.num_fds(),
                    )
                )
        return found

    def __enter__(self) -> Self:
        try:
            self.prepare()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
