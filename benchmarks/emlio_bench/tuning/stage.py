"""A daemon behind an emulated link, over which ranks read that are set in different ways."""

import os
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from emlio_bench.harness.data import locked, make_data, shard_paths, warm_cache
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.harness.sides import running_daemon
from emlio_bench.link.choice import open_link
from emlio_bench.link.emulated import EmulatedLink
from emlio_bench.processes.child import Child, start_worker
from emlio_bench.tuning.contenders import STILL
from emlio_bench.tuning.places import Place
from emlio_bench.tuning.rank import Begun, Got, Order

__all__ = ["DATA_BYTES", "Stage", "open_stage"]

_BATCH_BYTES: Final = 3_200_000
DATA_BYTES: Final = 600_000_000
"""Of the dataset."""

_ANSWER_S: Final = 120.0
_START_S: Final = 1.0
"""A rival takes this long to start, and ends with its stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The daemon and the link that all runs of an environment share."""

    place: Place
    link: EmulatedLink
    address: str
    pid: int

    def order(self, **changes: Any) -> Order:
        """Return an order for a rank."""
        record = self.place.record_bytes
        return Order(
            address=self.address,
            daemon_pid=self.pid,
            batch_records=max(_BATCH_BYTES // record, 1),
            record_bytes=record,
            **changes,
        )

    def run(self, order: Order) -> Got:
        """Let a rank read, and change the environment meanwhile."""
        self._become(self.place)
        with ExitStack() as stack:
            rank = stack.enter_context(self._start(order))
            begun = rank.hear(Begun, _ANSWER_S)
            stages = self.place.stages
            ends_s = [at_s for at_s, _ in stages[2:]] + [order.seconds]
            rivals: list[Child] = []
            for (at_s, place), end_s in zip(stages[1:], ends_s, strict=False):
                time.sleep(max(begun.at_ns / 1e9 + at_s - time.monotonic(), 0.0))
                self._become(place)
                work = self.order(contender=STILL, warm_s=0.0, seconds=end_s - at_s - _START_S)
                rivals += [stack.enter_context(self._start(work)) for _ in range(place.rivals)]
            got = rank.hear(Got, _ANSWER_S + order.seconds + len(order.walk) * (order.settle_s + order.hold_s))
            rank.rest(_ANSWER_S)
            for rival in rivals:
                rival.hear(Begun, _ANSWER_S)
                rival.hear(Got, _ANSWER_S)
                rival.rest(_ANSWER_S)
        return got

    def _start(self, order: Order) -> Child:
        return start_worker("tune-rank", order, self.link.training.command)

    def _become(self, place: Place) -> None:
        """Be an environment from now on."""
        self.link.change(place.link)
        mine = sorted(os.sched_getaffinity(0))
        chosen, set_before = mine[: place.cores or len(mine)], set[str]()
        # A thread that is made meanwhile has the processors of the one that makes it.
        while more := set(os.listdir(f"/proc/{self.pid}/task")) - set_before:
            for task in more:
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(int(task), chosen)
            set_before |= more


@contextmanager
def open_stage(place: Place, root: Path, size_bytes: int = DATA_BYTES) -> Generator[Stage]:
    """Make the data in a folder, unless they are there, and serve them over the link of an environment."""
    spec = DataSpec(kind="opaque", record_bytes=place.record_bytes, records=size_bytes // place.record_bytes, shards=8)
    directory = make_data(spec, root, progress=False)
    warm_cache(directory)
    with locked(shard_paths(directory)), open_link(place.link) as link:
        assert isinstance(link, EmulatedLink)
        with running_daemon(directory, link=link) as daemon:
            yield Stage(place=place, link=link, address=daemon.address, pid=daemon.pid)
