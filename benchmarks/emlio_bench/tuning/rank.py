"""A rank that is set by a contender, or walks through settings, and tells what it got tenth by tenth of a second."""

import random
import time
from pathlib import Path
from typing import Final

import msgspec

from emlio import EmlioLoader
from emlio.receiver.tuning.log import Line
from emlio.receiver.tuning.tuning import Tuning
from emlio_bench.harness.sides import open_rank
from emlio_bench.processes.child import say
from emlio_bench.tuning.contenders import AUTO, Draw, Still, Walk, rule_of

__all__ = ["Begun", "Got", "Order", "Sample", "Walked", "read"]

_TICK_S: Final = 0.1
_HERTZ: Final = 100


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a rank.

    Attributes:
        address: of the daemon.
        daemon_pid: its process.
        batch_records, record_bytes: of the data.
        contender: sets it; "" for settings that it walks through.
        model: the file of a model, for a contender that is learned; "" for the one of emlio.
        draw: draws settings at random with this seed, and reports what it saw; None for a contender.
        fixed: the settings that it has from the beginning, and keeps; None for the contender's.
        walk: the settings to walk through.
        settle_s, hold_s: how long each is left alone, and then measured.
        warm_s: before anything is measured.
        seconds: how long it is measured, without a walk.
        user: bytes a second that the user takes, from these times on; 0 for all that come.
        rank, world_size: of the job.
    """

    address: str
    daemon_pid: int
    batch_records: int
    record_bytes: int
    contender: str = AUTO
    model: str = ""
    draw: int | None = None
    fixed: Tuning | None = None
    walk: tuple[Tuning, ...] = ()
    settle_s: float = 1.0
    hold_s: float = 1.5
    warm_s: float = 2.0
    seconds: float = 20.0
    user: tuple[tuple[float, float], ...] = ((0.0, 0.0),)
    rank: int = 0
    world_size: int = 1


class Begun(msgspec.Struct, frozen=True):
    """It begins to be measured, at this time of CLOCK_MONOTONIC."""

    at_ns: int


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """Totals at a moment, in seconds and bytes since what is measured began."""

    at_s: float
    size_bytes: int
    received_bytes: int
    wait_s: float
    rank_cpu_s: float
    daemon_cpu_s: float


class Walked(msgspec.Struct, frozen=True, array_like=True):
    """A setting, and the samples at the begin and the end of its time."""

    tuning: Tuning
    begin: Sample
    end: Sample


class Got(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of a run, the settings that it walked through, those that held at its end, and what it saw of drawn ones."""

    samples: tuple[Sample, ...]
    walked: tuple[Walked, ...] = ()
    settings: Tuning
    lines: tuple[Line, ...] = ()


def read(orders: bytes) -> None:
    """Read as ordered, and report."""
    order = msgspec.json.decode(orders, type=Order)
    walk = Walk(list(order.walk), round(order.settle_s * 1e9), round(order.hold_s * 1e9)) if order.walk else None
    draw = None if order.draw is None else Draw(random.Random(order.draw), round(order.hold_s * 1e9))
    fixed = None if order.fixed is None else Still(order.fixed)
    rule = walk or draw or fixed or rule_of(order.contender, order.model)
    with open_rank(
        order.address,
        order.batch_records,
        rank=order.rank,
        world_size=order.world_size,
        tune=AUTO if rule is None else rule,
    ) as loader:
        got = _Reader(loader, order, walk).run()
    say(got if draw is None else msgspec.structs.replace(got, lines=tuple(draw.lines)))


class _Reader:
    def __init__(self, loader: EmlioLoader, order: Order, walk: Walk | None) -> None:
        self._loader = loader
        self._order = order
        self._walk = walk
        self._size = 0
        self._zero: Sample | None = None
        self._samples: list[Sample] = []

    def run(self) -> Got:
        """Take batches until all is measured."""
        warm_s, due_s = time.monotonic() + self._order.warm_s, 0.0
        while True:
            for batch in self._loader:
                size = len(batch["record"]) * self._order.record_bytes
                del batch
                now_s = time.monotonic()
                if self._zero is None and now_s >= warm_s:
                    self._size = 0
                    self._zero = self._totals(now_s)
                    say(Begun(round(now_s * 1e9)))
                self._size += size
                due_s = self._pace(size, due_s, now_s)
                if self._zero is not None and self._ends(self._zero, time.monotonic()):
                    return Got(
                        samples=tuple(self._samples), walked=self._walked(self._zero), settings=self._loader.tuning
                    )

    def _pace(self, size: int, due_s: float, now_s: float) -> float:
        at_s = now_s - self._zero.at_s if self._zero is not None else 0.0
        rate = [rate for from_s, rate in self._order.user if at_s >= from_s][-1]
        if not rate:
            return now_s
        due_s = max(due_s, now_s - size / rate) + size / rate
        time.sleep(max(due_s - now_s, 0.0))
        return due_s

    def _ends(self, zero: Sample, now_s: float) -> bool:
        at_s = now_s - zero.at_s
        if not self._samples or at_s - self._samples[-1].at_s >= _TICK_S:
            now = self._totals(now_s)
            self._samples.append(
                Sample(
                    at_s,
                    now.size_bytes,
                    now.received_bytes - zero.received_bytes,
                    now.wait_s - zero.wait_s,
                    now.rank_cpu_s - zero.rank_cpu_s,
                    now.daemon_cpu_s - zero.daemon_cpu_s,
                )
            )
        return self._walk.is_over if self._walk is not None else at_s >= self._order.seconds

    def _totals(self, now_s: float) -> Sample:
        words = Path(f"/proc/{self._order.daemon_pid}/stat").read_text().rpartition(")")[2].split()
        daemon_s = (int(words[11]) + int(words[12])) / _HERTZ
        stats = self._loader.stats()
        return Sample(
            now_s, self._size, stats.received_bytes, stats.records_wait_ns / 1e9, time.process_time(), daemon_s
        )

    def _walked(self, zero: Sample) -> tuple[Walked, ...]:
        """Return the settings with the samples next to their times; those before anything was measured are left out."""

        def near(at_ns: int) -> Sample:
            return min(self._samples, key=lambda one: abs(one.at_s + zero.at_s - at_ns / 1e9))

        walked = self._walk.walked if self._walk is not None else []
        return tuple(
            Walked(tuning, near(begin_ns), near(end_ns))
            for tuning, begin_ns, end_ns in walked
            if begin_ns / 1e9 >= zero.at_s
        )
