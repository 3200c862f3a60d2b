"""`emlio-bench start`: the time from the loader's constructor to the first batch.

Covers: new processes with one running daemon and an indexed dataset, on loopback. Does not cover:
importing, starting the daemon, long links (emlio_bench.start.over_link).
"""

import sys
import time
from typing import Final

import msgspec

from emlio.progress import Progress
from emlio_bench.harness.data import data_root, make_data, warm_cache
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.pair import ANSWER_S
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.processes.child import say, start_worker
from emlio_bench.processes.daemon import running_daemon
from emlio_bench.start.over_link import run_start_over_link
from emlio_bench.start.settings import StartSettings
from emlio_bench.subjects.loader import open_loader

__all__ = ["first_batch", "run_start"]

_RECORD_BYTES: Final = 1000


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    data: DataSpec
    batch_records: int


class _Started(msgspec.Struct, frozen=True, kw_only=True):
    constructed_ns: int
    first_batch_ns: int


def first_batch(orders: bytes) -> None:
    """Run the rank's process: read one batch, and report the times."""
    order = msgspec.json.decode(orders, type=_Order)
    begun = time.monotonic_ns()
    with open_loader(order.address, order.data, order.batch_records, "global") as loader:
        constructed = time.monotonic_ns()
        next(iter(loader))
        say(_Started(constructed_ns=constructed - begun, first_batch_ns=time.monotonic_ns() - begun))


def run_start(settings: StartSettings) -> Results:
    """Measure all requested starts."""
    if settings.rtt:
        return run_start_over_link(settings)
    records = 10_000 if settings.quick else settings.record_count
    data = DataSpec(kind="opaque", record_bytes=_RECORD_BYTES, records=records)
    starts: list[_Started] = []
    with data_root(settings.data) as root:
        directory = make_data(data, root, progress=sys.stderr.isatty())
        warm_cache(directory)
        with running_daemon(directory) as daemon, Progress("starts", settings.rounds) as bar:
            order = _Order(address=daemon.address, data=data, batch_records=min(settings.batch_records, records))
            for _ in range(settings.rounds):
                with start_worker("loader-start", order) as rank:
                    starts.append(rank.hear(_Started, ANSWER_S))
                    rank.rest(ANSWER_S)
                bar.add(1)
    note = f"{records:,} indexed records of {_RECORD_BYTES} bytes on loopback, global order, a fresh process each time."
    return Results(
        benchmark="start",
        environment=read_environment(None),
        settings=(("records", str(records)), ("batch", str(settings.batch_records))),
        figures=(
            Figure(
                name="constructor",
                unit="ms",
                values=tuple(start.constructed_ns / 1e6 for start in starts),
                note=note,
            ),
            Figure(
                name="constructor to first batch",
                unit="ms",
                values=tuple(start.first_batch_ns / 1e6 for start in starts),
                note=note,
            ),
        ),
    )
