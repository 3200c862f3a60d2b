"""A rank in a fresh process that reads some batches, and tells times and memory."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from emlio_bench.harness.sides import ANSWER_S, open_rank
from emlio_bench.link.contract import LinkEnd
from emlio_bench.processes.child import say, start_worker

__all__ = ["Read", "ReadOrder", "read", "read_in_process"]

_RESET_PEAK: Final = "5"
"""Written to /proc/self/clear_refs, it sets the peak back to what is resident."""


class ReadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order to read.

    Attributes:
        address: address of the dataset.
        batch_records: records in a batch.
        batches: number of batches, over epochs.
        bytes_per_s: what its user takes; 0 for all that comes.
        prefetch: the loader's.
        cache: folder of what the host remembers of daemons; empty for the user's own.
    """

    address: str
    batch_records: int
    batches: int = 1
    bytes_per_s: int = 0
    prefetch: str = "128MiB"
    cache: str = ""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """Its report; times count from before the constructor, memory is resident."""

    constructed_ns: int
    first_batch_ns: int
    ended_ns: int
    later_bytes: int
    lanes: int
    imported_bytes: int
    peak_bytes: int

    @property
    def later_bytes_per_s(self) -> float:
        """Payload per second after the first batch."""
        return self.later_bytes * 1e9 / max(self.ended_ns - self.first_batch_ns, 1)


def read_in_process(order: ReadOrder, at: LinkEnd | None = None, *, within_s: float = 120.0) -> Read:
    """Run the rank, at this end of a link or here."""
    with start_worker("cost-read", order, at.command if at is not None else list) as rank:
        said = rank.hear(Read, within_s)
        rank.rest(ANSWER_S)
    return said


def read(orders: bytes) -> None:
    """Read; the program of the rank."""
    order = msgspec.json.decode(orders, type=ReadOrder)
    if order.cache:
        os.environ["EMLIO_CACHE"] = order.cache
    Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
    imported_bytes = _resident_bytes("VmRSS")
    begun_ns = time.monotonic_ns()
    with open_rank(order.address, order.batch_records, prefetch=order.prefetch) as loader:
        constructed_ns = time.monotonic_ns()
        sizes = _sizes(loader)
        first_bytes = next(sizes)
        first_ns, later_bytes = time.monotonic_ns(), 0
        for _ in range(order.batches - 1):
            later_bytes += next(sizes)
            if order.bytes_per_s:
                due_ns = first_ns + (later_bytes + first_bytes) * 1_000_000_000 // order.bytes_per_s
                time.sleep(max(due_ns - time.monotonic_ns(), 0) / 1e9)
        said = Read(
            constructed_ns=constructed_ns - begun_ns,
            first_batch_ns=first_ns - begun_ns,
            ended_ns=time.monotonic_ns() - begun_ns,
            later_bytes=later_bytes,
            lanes=loader.stats().lanes,
            imported_bytes=imported_bytes,
            peak_bytes=_resident_bytes("VmHWM"),
        )
    say(said)


def _sizes(loader: Any) -> Iterator[int]:
    """Take batch after batch without keeping any."""
    while True:
        for batch in loader:
            size_bytes = sum(map(len, batch["record"]))
            del batch
            yield size_bytes


def _resident_bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
