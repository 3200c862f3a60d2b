"""A rank of a scaling run: reads without end and notes when each batch came.

Covers: what it is told, what it notes, how many bytes came between two times. Does not cover: links, daemons and rounds
(emlio.benchmarks.scaling).
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

from emlio import EmlioLoader
from emlio.benchmarks.pair import ANSWER_S
from emlio.benchmarks.processes import say
from emlio.errors import ConfigError

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
"""A loader's default, which the others have if nothing else is wanted."""

SLOW_WINDOW_BYTES: Final = 32 << 20
"""Of a rank that works. Its window must be full when a sample begins: from then on it takes no more off the wire than it uses."""


class RankOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank is told.

    Attributes:
        address: of the daemons.
        job: names the run, for all its ranks.
        rank: of this process.
        ranks: how many there are.
        batch_records: in a batch.
        record_bytes: of each record.
        window_bytes: what it may take off the wire ahead of its loop.
        work_ns: how long it does nothing but keep a batch.
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
    """A batch was handed out.

    Attributes:
        at_ns: on the machine's monotonic clock.
        used_bytes: payload of all batches so far, this one with them.
        received_bytes: taken off the wire so far.
    """

    at_ns: int
    used_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a rank had of a span of time, in bytes.

    Attributes:
        received: taken off the wire.
        used: payload of the batches that its loop got.
    """

    received: float
    used: float


def share_between(marks: Sequence[Mark], begin_ns: int, end_ns: int) -> Share:
    """What came between these times; of what came across one of them its part.

    Args:
        marks: of a rank, in order. The first must not be after `begin_ns`, the last not before `end_ns`.
        begin_ns: when counting begins.
        end_ns: when it ends, later.
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
    """The batches so far.

    Attributes:
        marks: one for each.
    """

    def __init__(self, order: RankOrder, received_bytes: Callable[[], int]) -> None:
        """See the class; `received_bytes` says what was taken off the wire so far."""
        self._order = order
        self._received_bytes = received_bytes
        self._told_to_end = False
        self._used_bytes = 0
        self.marks: list[Mark] = []

    def end_soon(self, number: int, frame: FrameType | None) -> None:
        """A signal's handler."""
        self._told_to_end = True

    def take(self, records: int) -> bool:
        """Note a batch and work on it; whether more are wanted."""
        # Asked first: what is noted last must be later than the signal, which may come in the midst of this.
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
    """Read until told to end (SIGTERM) and then to the next batch; says the first mark at once, all of them at the end."""
    order = msgspec.json.decode(orders, type=RankOrder)
    os.environ["EMLIO_JOB"] = order.job  # as a launcher would set it
    with EmlioLoader(
        order.address,
        batch_size=order.batch_records,
        seed=1,
        raw=True,
        to="numpy",
        rank=order.rank,
        world_size=order.ranks,
        timeout=f"{ANSWER_S:g}s",
        prefetch=SLOW_WINDOW_BYTES if order.work_ns else order.window_bytes,
    ) as loader:
        reading = Reading(order, lambda: loader.stats().received_bytes)
        signal.signal(signal.SIGTERM, reading.end_soon)
        while all(reading.take(len(batch["record"])) for batch in loader):
            continue  # with the next epoch
        say(reading.marks)
