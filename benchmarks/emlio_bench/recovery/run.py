"""`emlio-bench recovery`: the effect on a rank of a daemon that fails.

The daemon is killed, stops, is replaced by a replica, or stays away. Each event happens many times
to real processes on loopback, while a rank reads with a small window and a millisecond of work for
each batch. All that a rank read is compared with an undisturbed reading of the directory, without a
daemon.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from emlio.progress import Progress
from emlio_bench.harness.command import Command, CommonSettings
from emlio_bench.harness.data import prepared
from emlio_bench.harness.options import count
from emlio_bench.harness.plot import bar_panels
from emlio_bench.harness.results import Figure, Results, by_name, figure, results_of
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.harness.spread import spread
from emlio_bench.recovery.events import (
    BACK,
    EVENTS,
    GIVEN_BACK,
    GONE,
    MOVING,
    MOVING_SOON,
    NOTICED,
    REPLACED,
    Reading,
    Scene,
    gone_for_good,
)
from emlio_bench.recovery.rank import ReadOrder
from emlio_bench.recovery.stage import WatchedRank

__all__ = ["COMMAND", "RecoverySettings", "draw_recovery", "run_recovery"]

_DRAWN: Final = (BACK, MOVING, MOVING_SOON, NOTICED, REPLACED, GIVEN_BACK, GONE)


def draw_recovery(results: Results) -> Any:
    """Return the figure: all waits with their bounds."""
    figures = by_name(results)
    bars = [
        (f"{name}\n(at most {figures[name].at_most:g} s)", "emlio", spread(figures[name].values)) for name in _DRAWN
    ]
    return bar_panels(results, [("", "seconds", bars)], "What a rank sees of a daemon that fails")


_RECORD_BYTES: Final = 4000
_RECORDS: Final = 32_000
_QUICK_RECORDS: Final = 4000
_BATCH: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySettings(CommonSettings):
    """`emlio-bench recovery`."""

    repeats: int = count(10, "times each thing happens")
    seed: int = count(1, "draws for how long a daemon is away")


def run_recovery(settings: RecoverySettings) -> Results:
    """Run all events, and compare."""
    data = DataSpec(kind="opaque", record_bytes=_RECORD_BYTES, records=_QUICK_RECORDS if settings.quick else _RECORDS)
    repeats = min(settings.repeats, 1) if settings.quick else settings.repeats
    total = repeats * (len(EVENTS) + 1)
    with prepared(data, settings.data) as directory, Progress("events", total) as bar:
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
    told = {
        "repeats": repeats,
        "seed": settings.seed,
        "records": data.records,
        "record_bytes": _RECORD_BYTES,
        "batch": _BATCH,
    }
    return results_of("recovery", told, figures)


def _compared(readings: Sequence[Reading], directory: Path) -> tuple[Figure, ...]:
    """Read as many batches from the directory; ids and bytes must be the same, in the same order."""
    other: list[float] = []
    for reading in readings:
        order = ReadOrder(address=str(directory), batch_records=_BATCH, batches=reading.ended.batches)
        with WatchedRank(order) as rank:
            other.append(float(rank.ends().digest != reading.ended.digest))
    batches = (float(reading.ended.batches) for reading in readings)
    unlike = "ranks that got other records, or in another order, than undisturbed"
    return (
        figure("batches that each rank read, all events in its life", "batches", batches),
        figure(unlike, "ranks", other, at_most=0, every=True),
    )


COMMAND: Final = Command(
    name="recovery",
    settings=RecoverySettings,
    run=lambda settings, _: run_recovery(settings),
    text="how long a rank waits when a daemon is killed, stands still, is replaced or stays away",
    draw=draw_recovery,
)
