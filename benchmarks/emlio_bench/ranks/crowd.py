"""A process with many light ranks.

All its ranks join, and it reports this. Each SIGUSR1 starts the next step: opening streams and
reading, counting the received bytes, and ending the count with a report. The process reports after
joining, after all streams have delivered data, and at the end.

Covers: these steps. Does not cover: a single rank (emlio_bench.ranks.light_rank), sending the
signals (emlio_bench.ranks.run).
"""

import resource
import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final

import msgspec
import zmq

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.wire.control import ShardRow
from emlio_bench.processes.child import say
from emlio_bench.ranks.crowd_order import CrowdOrder
from emlio_bench.ranks.light_rank import LightRank
from emlio_bench.ranks.waiter import Waiter

__all__ = ["Joined", "Received", "Streaming", "join_and_read"]

_TICK_NS: Final = 100_000_000
_MOST_SOCKETS: Final = 65_000


class Joined(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A message that all ranks have agreed on the plan, and their lanes are up.

    Attributes:
        begun_ns: time of the first hello.
        joined_ns: time when all ranks had joined.
    """

    begun_ns: int
    joined_ns: int


class Streaming(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A message that all ranks have received data."""


class Received(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The received data.

    Attributes:
        counts: bytes that each rank read during the count.
        replaced: lanes of all ranks that were lost, or never came up, since the beginning.
    """

    counts: list[int]
    replaced: int


class _Crowd:
    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", waiter: Waiter, order: CrowdOrder) -> None:
        self._order = order
        self._waiter = waiter
        self._plan: Plan | None = None
        self.signals = 0
        self.ranks = [
            LightRank(context, waiter, order, rank, self._plan_of)
            for rank in range(order.first, order.first + order.count)
        ]
        self._ticked_ns = 0

    def signal(self, number: int, frame: FrameType | None) -> None:
        self.signals += 1

    def go_on_until(self, reached: Callable[[], bool]) -> None:
        while True:
            self._waiter.wait(_TICK_NS / 1e9)
            now_ns = time.monotonic_ns()
            if now_ns - self._ticked_ns >= _TICK_NS:
                self._ticked_ns = now_ns
                for rank in self.ranks:
                    rank.tick(now_ns)
                # Ranks are checked only this often: checking a thousand ranks takes as long as many
                # messages.
                if reached():
                    return

    def _plan_of(self, rows: Sequence[ShardRow]) -> Plan:
        # The daemon sends the same list to all ranks.
        if self._plan is None:
            shards = tuple(
                ShardEntry(name=row.name, records=row.records, size_bytes=row.size_bytes, digest=row.digest)
                for row in rows
            )
            spec = PlanSpec(
                batch_size=self._order.batch_records, world_size=self._order.ranks, shuffle=Shuffle.parse("global")
            )
            self._plan = Plan(Catalog(shards=shards), spec)
        return self._plan


def join_and_read(orders: bytes) -> None:
    """Run the process; see the module."""
    order = msgspec.json.decode(orders, type=CrowdOrder)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with zmq.Context() as context, Waiter() as waiter:
        context.set(zmq.MAX_SOCKETS, _MOST_SOCKETS)
        begun_ns = time.monotonic_ns()
        crowd = _Crowd(context, waiter, order)
        signal.signal(signal.SIGUSR1, crowd.signal)
        crowd.go_on_until(lambda: all(rank.joined for rank in crowd.ranks))
        say(Joined(begun_ns=begun_ns, joined_ns=time.monotonic_ns()))
        crowd.go_on_until(lambda: crowd.signals >= 1)
        for rank in crowd.ranks:
            rank.open()
        crowd.go_on_until(lambda: all(rank.read_bytes for rank in crowd.ranks))
        say(Streaming())
        crowd.go_on_until(lambda: crowd.signals >= 2)
        before = [rank.read_bytes for rank in crowd.ranks]
        crowd.go_on_until(lambda: crowd.signals >= 3)
        counts = [rank.read_bytes - earlier for rank, earlier in zip(crowd.ranks, before, strict=True)]
        say(Received(counts=counts, replaced=sum(rank.replaced for rank in crowd.ranks)))
        for rank in crowd.ranks:
            rank.close()
