"""The process that reads at full rate from a daemon, beside the all-reduce or alone.

Covers: one measurement of a loader, with the times of its window. Does not cover: the all-reduce
(emlio_bench.allreduce.reduce).
"""

import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec

from emlio_bench.allreduce.reduce import Slice
from emlio_bench.experiment.rank import open_rank
from emlio_bench.harness.pair import ANSWER_S
from emlio_bench.processes.child import say, start_worker
from emlio_bench.processes.daemon import running_daemon

__all__ = ["LoadOrder", "load", "loaded"]


class LoadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the process.

    Attributes:
        address: address of the daemon.
        batch_records: records in a batch.
        record_bytes: size of a record.
        warm_up_bytes: payload before the window.
        span_ns: least length of the window.
    """

    address: str
    batch_records: int
    record_bytes: int
    warm_up_bytes: int
    span_ns: int


def load(orders: bytes) -> None:
    """Read for a window, and report it."""
    order = msgspec.json.decode(orders, type=LoadOrder)
    warmed_bytes = window_bytes = 0
    begun_ns = now_ns = 0
    with open_rank(order.address, order.batch_records) as loader:
        for batch in _endless(loader):
            size_bytes = len(batch["record"]) * order.record_bytes
            now_ns = time.monotonic_ns()
            if not begun_ns:
                warmed_bytes += size_bytes
                begun_ns = now_ns if warmed_bytes >= order.warm_up_bytes else 0
                continue
            window_bytes += size_bytes
            if now_ns - begun_ns >= order.span_ns:
                break
    say(Slice(begun_ns=begun_ns, ended_ns=now_ns, bytes=window_bytes))


def _endless(loader: Any) -> Generator[Any, None, None]:
    while True:
        yield from loader


def loaded(directory: Path, *, batch_records: int, record_bytes: int, warm_up_bytes: int, span_ns: int) -> Slice:
    """Run a daemon and a loader for one window; see `LoadOrder`."""
    with running_daemon(directory) as daemon:
        order = LoadOrder(
            address=daemon.address,
            batch_records=batch_records,
            record_bytes=record_bytes,
            warm_up_bytes=warm_up_bytes,
            span_ns=span_ns,
        )
        with start_worker("allreduce-load", order) as child:
            found = child.hear(Slice, 2 * span_ns / 1e9 + ANSWER_S)
            child.rest(ANSWER_S)
            return found
