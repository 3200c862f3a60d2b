"""`emlio-bench plan`: the cost of computing the next records.

Covers: walking a plan of 10^9 records from a random start, and one batch at random, in each shuffle
mode. Does not cover: reading records.
"""

import random
import time
from itertools import islice
from typing import Final

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle, ShuffleMode
from emlio.planner.plan import CHUNK, EpochPlan, Plan, PlanSpec, walk
from emlio.progress import Progress
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.settings import PlanSettings

__all__ = ["run_plan"]

_BATCHES: Final = 50
"""The number of random batches timed one by one, for each mode and repeat."""


def run_plan(settings: PlanSettings) -> Results:
    """Time all modes in turn, in several rounds."""
    records = min(settings.records, 1_000_000) if settings.quick else settings.records
    walked = min(settings.walk, 10 * CHUNK) if settings.quick else settings.walk
    catalog = _catalog(records, settings.shards)
    if walked + settings.batch > records:
        raise ConfigError(f"--walk must leave room in {records} records, got {walked}")
    epochs = {
        mode: Plan(catalog, PlanSpec(seed=1, shuffle=Shuffle(mode=mode), batch_size=settings.batch)).epoch(1)
        for mode in ShuffleMode
    }
    walks: dict[ShuffleMode, list[float]] = {mode: [] for mode in ShuffleMode}
    jumps: dict[ShuffleMode, list[float]] = {mode: [] for mode in ShuffleMode}
    draws = random.Random(1)
    with Progress("plans", settings.repeats * len(ShuffleMode)) as bar:
        for _ in range(settings.repeats):
            for mode, epoch in epochs.items():
                walks[mode].append(_walk_ns(epoch, draws.randrange(records - walked), walked))
                jumps[mode] += [_batch_ms(epoch, draws.randrange(epoch.steps)) for _ in range(_BATCHES)]
                bar.add(1)
    note = f"{records:,} records in {len(catalog.shards):,} shards, batches of {settings.batch}, one thread."
    figures = [
        *(_figure(f"walk, {mode.value}", "ns a record", values, note) for mode, values in walks.items()),
        *(_figure(f"a random batch, {mode.value}", "ms", values, note) for mode, values in jumps.items()),
    ]
    return Results(
        benchmark="plan",
        environment=read_environment(None),
        settings=(("records", str(records)), ("walk", str(walked)), ("batch", str(settings.batch))),
        figures=tuple(figures),
    )


def _figure(name: str, unit: str, values: list[float], note: str) -> Figure:
    return Figure(name=name, unit=unit, values=tuple(values), note=note)


def _catalog(records: int, shards: int) -> Catalog:
    share, more = divmod(records, shards)
    return Catalog(
        shards=tuple(
            ShardEntry(
                name=f"shard-{number:08d}", records=share + (number < more), size_bytes=0, digest=f"{number:032x}"
            )
            for number in range(shards)
        )
    )


def _walk_ns(epoch: EpochPlan, first: int, records: int) -> float:
    """Return nanoseconds per record for id, shard and position, as a daemon needs them."""
    begun = time.perf_counter_ns()
    seen = sum(len(slots) for slots, _, _ in islice(walk(epoch, 0, first), -(-records // CHUNK)))
    return (time.perf_counter_ns() - begun) / seen


def _batch_ms(epoch: EpochPlan, step: int) -> float:
    """Return milliseconds to compute the records of one batch, with no preparation."""
    begun = time.perf_counter_ns()
    epoch.catalog.locate(epoch.ids(0, *epoch.batch_slots(0, step)))
    return (time.perf_counter_ns() - begun) / 1e6
