"""A rank of a scaling run: it reads without end and records the time of each batch.

Covers: its configuration, its records, the number of bytes between two times. Does not cover:
links, daemons and rounds (emlio_bench.scaling.run).
"""

import os
import signal
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Final

import msgspec

from emlio.errors import ConfigError
from emlio_bench.harness.rank import open_rank
from emlio_bench.processes.child import say

__all__ = [
    "SLOW_WINDOW_BYTES",
    "USUAL_WINDOW_BYTES",
    "Mark",
    "RankOrder",
    "Reading",
    "Share",
    "read_on",
    "share_between",
]

USUAL_WINDOW_BYTES: Final = 128 << 20
"""The loader's default window, used by the other ranks unless the settings say otherwise."""

SLOW_WINDOW_BYTES: Final = 32 << 20
"""The window of a rank that works.

It must be full when a sample begins: from then on the rank receives no more than it uses.
"""


class RankOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a rank.

    Attributes:
        address: address of the daemons.
        job: name of the job, the same for all ranks.
        rank: number of this rank.
        ranks: number of ranks.
        batch_records: records in a batch.
        record_bytes: size of each record.
        window_bytes: bytes that it may receive ahead of its loop.
        work_ns: pause with each batch.
    """

    address: str
    job: str
    rank: int
    ranks: int
    batch_records: int
    record_bytes: int
    window_bytes: int = USUAL_WINDOW_BYTES
    work_ns: int = 0


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a batch that was handed out.

    Attributes:
        at_ns: time by the machine's monotonic clock.
        used_bytes: payload of all batches so far, including this one.
        received_bytes: bytes received from the network so far.
    """

    at_ns: int
    used_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The data of a rank in a span of time, in bytes.

    Attributes:
        received: bytes received from the network.
        used: payload of the batches handed to its loop.
    """

    received: float
    used: float


def share_between(marks: Sequence[Mark], begin_ns: int, end_ns: int) -> Share:
    """Return the data received between two times, interpolated between marks.

    Args:
        marks: marks of a rank, in order. The first must not be after `begin_ns`, the last not
            before `end_ns`.
        begin_ns: start of the span.
        end_ns: end of the span, later than its start.
    """
    if not marks or not marks[0].at_ns <= begin_ns < end_ns <= marks[-1].at_ns:
        seen = f"[{marks[0].at_ns}, {marks[-1].at_ns}]" if marks else "no time"
        raise ConfigError(f"a rank must read in all of [{begin_ns}, {end_ns}] ns, it did in {seen}")
    begin, end = _total_at(marks, begin_ns), _total_at(marks, end_ns)
    return Share(received=end.received - begin.received, used=end.used - begin.used)


def _total_at(marks: Sequence[Mark], at_ns: int) -> Share:
    place = bisect_left(marks, at_ns, key=lambda mark: mark.at_ns)
    later, earlier = marks[place], marks[max(place - 1, 0)]
    part = 1.0 if later is earlier else (at_ns - earlier.at_ns) / (later.at_ns - earlier.at_ns)
    return Share(
        received=earlier.received_bytes + part * (later.received_bytes - earlier.received_bytes),
        used=earlier.used_bytes + part * (later.used_bytes - earlier.used_bytes),
    )


class Reading:
    """The progress of the rank's reading.

    Attributes:
        marks: a mark for each batch.
    """

    def __init__(self, order: RankOrder, received_bytes: Callable[[], int]) -> None:
        """Start with no batch; `received_bytes` returns the bytes received from the network so far."""
        self._order = order
        self._received_bytes = received_bytes
        self._told_to_end = False
        self._used_bytes = 0
        self.marks: list[Mark] = []

    def end_soon(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: end after the next batch."""
        self._told_to_end = True

    def take(self, records: int) -> bool:
        """Record a batch and work on it; return whether to continue."""
        # Read first: the last mark must be later than the signal, which may come at any point
        # below.
        told_to_end = self._told_to_end
        self._used_bytes += records * self._order.record_bytes
        received_bytes = self._received_bytes()
        mark = Mark(at_ns=time.monotonic_ns(), used_bytes=self._used_bytes, received_bytes=received_bytes)
        self.marks.append(mark)
        if len(self.marks) == 1:
            say(mark)
        if told_to_end:
            return False
        if self._order.work_ns:
            time.sleep(self._order.work_ns / 1e9)
        return True


def read_on(orders: bytes) -> None:
    """Read until the next batch after SIGTERM.

    The first mark is reported at once, and all marks at the end.
    """
    order = msgspec.json.decode(orders, type=RankOrder)
    os.environ["EMLIO_JOB"] = order.job  # as a launcher would set it
    window = SLOW_WINDOW_BYTES if order.work_ns else order.window_bytes
    with open_rank(
        order.address, order.batch_records, seed=1, rank=order.rank, world_size=order.ranks, prefetch=window
    ) as loader:
        reading = Reading(order, lambda: loader.stats().received_bytes)
        signal.signal(signal.SIGTERM, reading.end_soon)
        while all(reading.take(len(batch["record"])) for batch in loader):
            continue  # continue with the next epoch
        say(reading.marks)
