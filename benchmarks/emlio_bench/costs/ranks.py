"""Many slow ranks of one job at one daemon: what the daemon takes."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from emlio.errors import TransportError
from emlio_bench.costs.settings import CostsSettings
from emlio_bench.harness.data import prepared
from emlio_bench.harness.results import MIB, Figure, figure
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.harness.sides import open_rank, running_daemon
from emlio_bench.processes.child import say, start_worker

__all__ = ["Census", "ranks_figures", "read_slowly", "take_census"]

_LISTENS: Final = "0A"
_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """The resources of a process at one time.

    Attributes:
        ports: TCP ports on which it listens.
        descriptors: number of open descriptors.
        threads_ns: processor time by thread name, summed over threads of the same name; the first
            thread is called "main".
        anonymous_bytes: memory that is not backed by a file.
    """

    ports: frozenset[int]
    descriptors: int
    threads_ns: Mapping[str, int]
    anonymous_bytes: int

    def threads_since(self, earlier: "Census") -> dict[str, int]:
        """Return the processor time of threads since an earlier census, by name."""
        return {name: spent - earlier.threads_ns.get(name, 0) for name, spent in self.threads_ns.items()}


def take_census(pid: int, proc: Path = Path("/proc")) -> Census:
    """Read the resources of a process, which must be alive.

    Args:
        pid: process id.
        proc: the proc file system.
    """
    own = proc / str(pid)
    try:
        links = _links(own / "fd")
        return Census(
            ports=frozenset(_listening(own / "net", links)),
            descriptors=len(links),
            threads_ns=_threads_ns(own / "task", pid),
            anonymous_bytes=_anonymous_bytes(own / "smaps_rollup"),
        )
    except FileNotFoundError as error:
        raise TransportError(f"process {pid} must live to be looked at: {error}") from error


def _links(folder: Path) -> list[str]:
    links: list[str] = []
    for name in os.listdir(folder):
        try:
            links.append(os.readlink(folder / name))
        except FileNotFoundError:
            continue  # it was closed meanwhile
    return links


def _listening(folder: Path, links: list[str]) -> Iterator[int]:
    # The tables list all sockets of the network namespace. The inode shows which process a socket
    # belongs to.
    own = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}
    for table in ("tcp", "tcp6"):
        path = folder / table
        for line in path.read_text(encoding="ascii").splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if fields[3] == _LISTENS and fields[9] in own:
                yield int(fields[1].rpartition(":")[2], 16)


def _threads_ns(folder: Path, pid: int) -> dict[str, int]:
    spent: Counter[str] = Counter()
    for task in folder.iterdir():
        try:
            text = (task / "stat").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue  # it ended meanwhile
        before, _, after = text.rpartition(")")
        fields = after.split()
        name = "main" if task.name == str(pid) else before.partition("(")[2]
        spent[name] += (int(fields[11]) + int(fields[12])) * _TICK_NS
    return dict(spent)


def _anonymous_bytes(path: Path) -> int:
    for line in path.read_text(encoding="ascii").splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise TransportError(f"the kernel must tell the anonymous memory of a process, {path} does not")


_RECORD_BYTES: Final = 10_000
_BATCH: Final = 4
_BYTES_PER_S: Final = 100_000
_LANES: Final = 4
_WITHIN_S: Final = 300.0


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    first: int
    count: int
    ranks: int
    seconds: int


class _Joined(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    elapsed_ns: int


class _Received(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    counts: list[int]


def read_slowly(orders: bytes) -> None:
    """Read with some of the ranks in turn; the program of one process."""
    order = msgspec.json.decode(orders, type=_Order)
    os.environ["EMLIO_JOB"] = "emlio-bench-ranks"  # as a launcher would set it
    begun_ns = time.monotonic_ns()
    with ExitStack() as stack:
        loaders = [
            stack.enter_context(
                open_rank(
                    order.address,
                    _BATCH,
                    rank=rank,
                    world_size=order.ranks,
                    shuffle="global",
                    prefetch="1MiB",
                )
            )
            for rank in range(order.first, order.first + order.count)
        ]
        walks = [_batches(loader) for loader in loaders]
        for walk in walks:
            next(walk)
        say(_Joined(elapsed_ns=time.monotonic_ns() - begun_ns))
        begun_ns, counts = time.monotonic_ns(), [0] * len(walks)
        turn_ns = _BATCH * _RECORD_BYTES * 1_000_000_000 // _BYTES_PER_S
        for turn in range(1, order.seconds * 1_000_000_000 // turn_ns + 1):
            for place, walk in enumerate(walks):
                counts[place] += next(walk)
            time.sleep(max(begun_ns + turn * turn_ns - time.monotonic_ns(), 0) / 1e9)
        say(_Received(counts=counts))


def _batches(loader: Any) -> Iterator[int]:
    while True:
        for batch in loader:
            yield sum(map(len, batch["record"]))


def ranks_figures(settings: CostsSettings) -> Iterator[Figure]:
    """Yield what joining and reading cost the daemon, by its threads."""
    ranks, processes, seconds = (8, 2, 1) if settings.quick else (128, 4, 20)
    data = DataSpec(kind="opaque", record_bytes=_RECORD_BYTES, records=5_000 if settings.quick else 50_000)
    flags = ["--lanes", str(_LANES), "--message-size", "128KiB", "--memory", "512MiB"]
    with prepared(data, settings.data) as directory, running_daemon(directory, flags) as daemon, ExitStack() as stack:
        alone, count = take_census(daemon.pid), ranks // processes
        orders = (
            _Order(address=daemon.address, first=first, count=count, ranks=ranks, seconds=seconds)
            for first in range(0, ranks, count)
        )
        readers = [stack.enter_context(start_worker("cost-ranks", order)) for order in orders]
        joining_ns = max(reader.hear(_Joined, _WITHIN_S).elapsed_ns for reader in readers)
        joined, joined_ns = take_census(daemon.pid), time.monotonic_ns()
        received = [count for reader in readers for count in reader.hear(_Received, _WITHIN_S).counts]
        ended, counted_s = take_census(daemon.pid), (time.monotonic_ns() - joined_ns) / 1e9
        for reader in readers:
            reader.rest(_WITHIN_S)
    note = (
        f"{ranks} ranks in {processes} processes, {_BYTES_PER_S / 1e3:g} kB/s each, records of {_RECORD_BYTES / 1e3:g} kB, "
        "loopback, no keys. Joining is from the first constructor to the last rank's first batch."
    )
    yield figure("joining", "s", (joining_ns / 1e9,), note)
    yield from _by_thread("joining", "s", joined.threads_since(alone), 1.0, note)
    yield from _by_thread("reading", "s/s", ended.threads_since(joined), counted_s, note)
    yield figure("reading: ports listened at", "", (float(len(ended.ports)),), note)
    yield figure("reading: descriptors", "", (float(ended.descriptors),), note)
    yield from _memory({"alone": alone, "joined": joined, "after reading": ended}, note)
    yield figure("reading: of each rank", "kB/s", (one / 1e3 / counted_s for one in received), note)


def _by_thread(phase: str, unit: str, spent: dict[str, int], over: float, note: str) -> Iterator[Figure]:
    for name, spent_ns in [("all threads", sum(spent.values())), *sorted(spent.items())]:
        yield figure(f"{phase}: processor time, {name}", unit, (spent_ns / 1e9 / over,), note)


def _memory(at: dict[str, Census], note: str) -> Iterator[Figure]:
    for when, census in at.items():
        yield figure(f"{when}: anonymous memory", "MiB", (census.anonymous_bytes / MIB,), note)
