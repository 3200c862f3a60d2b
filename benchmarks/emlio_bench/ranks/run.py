"""`emlio-bench ranks`: the cost to one daemon of many ranks that read slowly.

Ranks are light clients with real sessions and real connections, but without loaders, so that a
thousand of them fit in a few processes.

Covers: a daemon's ports, descriptors, memory and processor time while ranks join and while all
read, the data that each rank received. Does not cover: a single rank
(emlio_bench.ranks.light_rank), speed (emlio_bench.delivery.run).
"""

import os
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from emlio.progress import Progress
from emlio.units import format_size
from emlio_bench.harness.data import data_root, make_data, warm_cache
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.processes.child import Child, start_worker
from emlio_bench.processes.daemon import RunningDaemon, running_daemon
from emlio_bench.ranks.census import Census, take_census
from emlio_bench.ranks.crowd import Joined, Received, Streaming
from emlio_bench.ranks.crowd_order import CrowdOrder
from emlio_bench.ranks.settings import RanksSettings

__all__ = ["RanksRun", "ranks_figures", "run_ranks"]

_RECORD_BYTES: Final = 10_000
_RECORDS: Final = 50_000
_BATCH: Final = 4
_MESSAGE: Final = "128KiB"
"""The size of messages. It is small, so that slow ranks read often."""

_WITHIN_S: Final = 300.0
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksRun:
    """The measurements of a run.

    Attributes:
        alone: the daemon before the first rank.
        joined: the daemon after all ranks had agreed on the plan, and all their lanes were up.
        begun: the daemon at the start of the count, while all ranks read.
        ended: the daemon at the end of the count.
        joining_ns: time from the first hello to the last lane.
        counted_ns: length of the count.
        counts: bytes that each rank read during the count.
        replaced: lanes of all ranks that were lost, or never came up, since the beginning.
    """

    alone: Census
    joined: Census
    begun: Census
    ended: Census
    joining_ns: int
    counted_ns: int
    counts: tuple[int, ...]
    replaced: int


def run_ranks(settings: RanksSettings) -> Results:
    """Join, read and count, once."""
    if settings.quick:
        settings = replace(settings, ranks=8, processes=2, lanes=2, rate=1_000_000, seconds=1)
    data = DataSpec(kind="opaque", record_bytes=_RECORD_BYTES, records=_RECORDS // 10 if settings.quick else _RECORDS)
    with data_root(settings.data) as root, Progress("phases", 3) as bar:
        directory = make_data(data, root, progress=sys.stderr.isatty())
        warm_cache(directory)
        run = _run(directory, settings, bar)
    note = (
        f"{settings.ranks} ranks in {settings.processes} processes with {settings.lanes} lanes each, which read "
        f"{format_size(settings.rate)} a second each;\na daemon with {format_size(settings.memory)} of memory, "
        f"records of {format_size(_RECORD_BYTES)} in messages of {_MESSAGE}, "
        "loopback, no keys. Processor time is of the daemon, by the names of its threads."
    )
    return Results(
        benchmark="ranks",
        environment=read_environment(None),
        settings=(
            ("ranks", str(settings.ranks)),
            ("lanes", str(settings.lanes)),
            ("processes", str(settings.processes)),
            ("rate", str(settings.rate)),
            ("seconds", str(settings.seconds)),
            ("memory", str(settings.memory)),
        ),
        figures=ranks_figures(run, note),
    )


def _run(directory: Path, settings: RanksSettings, bar: Progress) -> RanksRun:
    flags = ["--lanes", str(settings.lanes), "--message-size", _MESSAGE, "--heartbeat-timeout", "60s"]
    flags += ["--memory", str(settings.memory)]
    with running_daemon(directory, flags) as daemon, ExitStack() as stack:
        alone = take_census(daemon.pid)
        crowds = [stack.enter_context(start_worker("ranks-crowd", order)) for order in _orders(daemon, settings)]
        joined = [crowd.hear(Joined, _WITHIN_S) for crowd in crowds]
        after_joining = take_census(daemon.pid)
        bar.add(1)
        _lead_on(crowds)
        for crowd in crowds:
            crowd.hear(Streaming, _WITHIN_S)
        bar.add(1)
        _lead_on(crowds)
        begun, begun_ns = take_census(daemon.pid), time.monotonic_ns()
        time.sleep(settings.seconds)
        ended, ended_ns = take_census(daemon.pid), time.monotonic_ns()
        _lead_on(crowds)
        received = [crowd.hear(Received, _WITHIN_S) for crowd in crowds]
        for crowd in crowds:
            crowd.rest(_WITHIN_S)
        bar.add(1)
    return RanksRun(
        alone=alone,
        joined=after_joining,
        begun=begun,
        ended=ended,
        joining_ns=max(one.joined_ns for one in joined) - min(one.begun_ns for one in joined),
        counted_ns=ended_ns - begun_ns,
        counts=tuple(count for one in received for count in one.counts),
        replaced=sum(one.replaced for one in received),
    )


def _orders(daemon: RunningDaemon, settings: RanksSettings) -> list[CrowdOrder]:
    place, _, dataset = daemon.address.removeprefix("emlio://").partition("/")
    host, _, port = place.rpartition(":")
    job, count = uuid.uuid4().hex, settings.ranks // settings.processes
    return [
        CrowdOrder(
            host=host,
            port=int(port),
            dataset=dataset,
            job=job,
            first=first,
            count=count,
            ranks=settings.ranks,
            lanes=settings.lanes,
            batch_records=_BATCH,
            bytes_per_s=settings.rate,
            # As if each process were a host, because the number of lanes of one host is limited.
            source=f"127.0.0.{2 + first // count}",
        )
        for first in range(0, settings.ranks, count)
    ]


def _lead_on(crowds: Sequence[Child]) -> None:
    for crowd in crowds:
        os.kill(crowd.pid, signal.SIGUSR1)


def ranks_figures(run: RanksRun, note: str) -> tuple[Figure, ...]:
    """Return the figures of a run.

    Args:
        run: measurements of the run.
        note: note for readers.
    """
    counted_s = run.counted_ns / 1e9
    joining = run.joined.threads_since(run.alone)
    starting = run.begun.threads_since(run.joined)
    reading = run.ended.threads_since(run.begun)
    figures = [
        ("joining: first hello to last lane", "s", (run.joining_ns / 1e9,)),
        ("joining: processor time", "s", (sum(joining.values()) / 1e9,)),
        *((f"joining: processor time, {name}", "s", (spent / 1e9,)) for name, spent in sorted(joining.items())),
        ("starting: processor time", "s", (sum(starting.values()) / 1e9,)),
        ("reading: ports listened at", "", (float(len(run.ended.ports)),)),
        ("reading: descriptors", "", (float(run.ended.descriptors),)),
        ("alone: anonymous memory", "MiB", (run.alone.anonymous_bytes / _MIB,)),
        ("joined: anonymous memory", "MiB", (run.joined.anonymous_bytes / _MIB,)),
        ("reading: anonymous memory", "MiB", (run.begun.anonymous_bytes / _MIB, run.ended.anonymous_bytes / _MIB)),
        ("reading: processor time", "s/s", (sum(reading.values()) / 1e9 / counted_s,)),
        *(
            (f"reading: processor time, {name}", "s/s", (spent / 1e9 / counted_s,))
            for name, spent in sorted(reading.items())
        ),
        ("lanes replaced", "", (float(run.replaced),)),
        ("reading: of each rank", "kB/s", tuple(count / 1e3 / counted_s for count in run.counts)),
    ]
    return tuple(Figure(name=name, unit=unit, values=values, note=note) for name, unit, values in figures)
