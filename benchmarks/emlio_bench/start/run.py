"""`emlio-bench start`: the time from the loader's constructor to the first batch.

Covers: new processes with one running daemon and an indexed dataset, on loopback. Does not cover:
importing, starting the daemon, long links (emlio_bench.start.over_link).
"""

import time
from typing import Final

import msgspec

from emlio.progress import Progress
from emlio_bench.experiment.command import Command
from emlio_bench.experiment.data import prepared
from emlio_bench.experiment.figures import figure, results_of
from emlio_bench.experiment.rank import open_rank
from emlio_bench.harness.pair import ANSWER_S
from emlio_bench.harness.results import Results
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.processes.child import say, start_worker
from emlio_bench.processes.daemon import running_daemon
from emlio_bench.start.over_link import run_start_over_link
from emlio_bench.start.settings import StartSettings

__all__ = ["COMMAND", "first_batch", "run_start"]

_RECORD_BYTES: Final = 1000


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    batch_records: int


class _Started(msgspec.Struct, frozen=True, kw_only=True):
    constructed_ns: int
    first_batch_ns: int


def first_batch(orders: bytes) -> None:
    """Run the rank's process: read one batch, and report the times."""
    order = msgspec.json.decode(orders, type=_Order)
    begun = time.monotonic_ns()
    with open_rank(order.address, order.batch_records) as loader:
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
    with (
        prepared(data, settings.data) as directory,
        running_daemon(directory) as daemon,
        Progress("starts", settings.rounds) as bar,
    ):
        order = _Order(address=daemon.address, batch_records=min(settings.batch_records, records))
        for _ in range(settings.rounds):
            with start_worker("loader-start", order) as rank:
                starts.append(rank.hear(_Started, ANSWER_S))
                rank.rest(ANSWER_S)
            bar.add(1)
    note = f"{records:,} indexed records of {_RECORD_BYTES} bytes on loopback, global order, a fresh process each time."
    figures = (
        figure("constructor", "ms", (start.constructed_ns / 1e6 for start in starts), note),
        figure("constructor to first batch", "ms", (start.first_batch_ns / 1e6 for start in starts), note),
    )
    return results_of("start", {"records": records, "batch": settings.batch_records}, figures)


COMMAND: Final = Command(
    name="start",
    settings=StartSettings,
    run=run_start,
    text="time from the loader's constructor to its first batch, on loopback or over a long link",
)
