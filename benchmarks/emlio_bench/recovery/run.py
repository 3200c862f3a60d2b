"""`emlio-bench recovery`: the effect on a rank of a daemon that fails.

The daemon is killed, stops, is replaced by a replica, or stays away. Each event happens many times
to real processes on loopback, while a rank reads with a small window and a millisecond of work for
each batch. All that a rank read is compared with an undisturbed reading of the directory, without a
daemon.

Covers: the sequence of events, comparing, results. Does not cover: the events
(emlio_bench.recovery.events), the plot (emlio_bench.recovery.plot).
"""

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from emlio.progress import Progress
from emlio_bench.harness.data import data_root, make_data, warm_cache
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.harness.settings import RecoverySettings
from emlio_bench.recovery.events import EVENTS, Reading, Scene, gone_for_good
from emlio_bench.recovery.rank import ReadOrder
from emlio_bench.recovery.stage import WatchedRank

__all__ = ["run_recovery"]

_RECORD_BYTES: Final = 4000
_RECORDS: Final = 32_000
_QUICK_RECORDS: Final = 4000
_BATCH: Final = 64


def run_recovery(settings: RecoverySettings) -> Results:
    """Run all events, and compare."""
    data = DataSpec(kind="opaque", record_bytes=_RECORD_BYTES, records=_QUICK_RECORDS if settings.quick else _RECORDS)
    repeats = min(settings.repeats, 1) if settings.quick else settings.repeats
    with data_root(settings.data) as root, Progress("events", repeats * (len(EVENTS) + 1)) as bar:
        directory = make_data(data, root, progress=sys.stderr.isatty())
        warm_cache(directory)
        scene = Scene(
            directory=directory,
            batch_records=_BATCH,
            repeats=repeats,
            chances=random.Random(settings.seed),
            advance=lambda: bar.add(1),
        )
        readings = [event(scene) for event in EVENTS]
        figures = [figure for reading in readings for figure in reading.figures]
        figures += [*gone_for_good(scene), *_compared(readings, directory)]
    return Results(
        benchmark="recovery",
        environment=read_environment(None),
        settings=(
            ("repeats", str(repeats)),
            ("seed", str(settings.seed)),
            ("records", str(data.records)),
            ("record_bytes", str(_RECORD_BYTES)),
            ("batch", str(_BATCH)),
        ),
        figures=tuple(figures),
    )


def _compared(readings: Sequence[Reading], directory: Path) -> tuple[Figure, ...]:
    """Read as many batches from the directory; ids and bytes must be the same, in the same order."""
    other: list[float] = []
    for reading in readings:
        order = ReadOrder(address=str(directory), batch_records=_BATCH, batches=reading.ended.batches)
        with WatchedRank(order) as rank:
            other.append(float(rank.ends().digest != reading.ended.digest))
    return (
        Figure(
            name="batches that each rank read, all events in its life",
            unit="batches",
            values=tuple(float(reading.ended.batches) for reading in readings),
        ),
        Figure(
            name="ranks that got other records, or in another order, than undisturbed",
            unit="ranks",
            values=tuple(other),
            at_most=0,
            every=True,
        ),
    )
