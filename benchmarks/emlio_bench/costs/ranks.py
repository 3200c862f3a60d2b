"""Many slow ranks of one job at one daemon: what the daemon takes."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import msgspec

from emlio_bench.costs.census import Census, take_census
from emlio_bench.costs.settings import CostsSettings
from emlio_bench.harness.daemon import running_daemon
from emlio_bench.harness.data import prepared
from emlio_bench.harness.figures import MIB, figure
from emlio_bench.harness.rank import open_rank
from emlio_bench.harness.results import Figure
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.processes.child import say, start_worker

__all__ = ["ranks_figures", "read_slowly"]

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
