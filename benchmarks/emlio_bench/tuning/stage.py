"""A daemon behind an emulated link, over which ranks read that are set in different ways."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from emlio_bench.harness.data import locked, make_data, shard_paths, warm_cache
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.harness.sides import running_daemon
from emlio_bench.link.choice import open_link
from emlio_bench.link.emulated import EmulatedLink
from emlio_bench.processes.child import start_worker
from emlio_bench.tuning.places import Place
from emlio_bench.tuning.rank import Begun, Got, Order

__all__ = ["DATA_BYTES", "Stage", "open_stage"]

_BATCH_BYTES: Final = 3_200_000
DATA_BYTES: Final = 600_000_000
"""Of the dataset."""

_ANSWER_S: Final = 120.0


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
        self.link.change(self.place.link)
        with start_worker("tune-rank", order, self.link.training.command) as rank:
            begun = rank.hear(Begun, _ANSWER_S)
            for at_s, place in self.place.stages[1:]:
                time.sleep(max(begun.at_ns / 1e9 + at_s - time.monotonic(), 0.0))
                self.link.change(place.link)
            got = rank.hear(Got, _ANSWER_S + order.seconds + len(order.walk) * (order.settle_s + order.hold_s))
            rank.rest(_ANSWER_S)
        return got


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
