"""Plans without data: the cost of a plan of 10^9 records, and padding in token batches."""

import random
import time
from collections.abc import Iterator
from itertools import islice, product
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle, ShuffleMode
from emlio.planner.plan import CHUNK, EpochPlan, Plan, PlanSpec, walk
from emlio.planner.tokens.lengths import padding_waste
from emlio.planner.tokens.packed import Packed
from emlio.planner.tokens.padded import Padded
from emlio.planner.tokens.plan import TokenPlan
from emlio_bench.costs.settings import CostsSettings
from emlio_bench.harness.data import prepared
from emlio_bench.harness.results import Figure, figure
from emlio_bench.harness.rounds import run_rounds
from emlio_bench.harness.scenario import MESSAGE_BYTES, QUICK_WINDOW, DataSpec, Scenario, Window
from emlio_bench.subjects.loader import Loader

__all__ = ["examples_figures", "padding_figures", "plan_figures"]

_SHARDS: Final = 10_000
_BATCH: Final = 256
_BATCHES: Final = 50
"""Random batches for each sample."""

_MEDIAN: Final = 200
_SIGMA: Final = 0.9
_LONGEST: Final = 4096
_MAX_TOKENS: Final = 16_384
_MOST_OF_RANDOM: Final = 0.5
"""Padding by length must be at most this share of random batches' padding."""


def plan_figures(settings: CostsSettings) -> Iterator[Figure]:
    """Yield the time for a record of a walk and for a random batch, by order."""
    records, walked = (1_000_000, 10 * CHUNK) if settings.quick else (1_000_000_000, 4_000_000)
    catalog = _catalog(records, _SHARDS)
    draws = random.Random(1)
    note = f"{records:,} records in {_SHARDS:,} shards, batches of {_BATCH}, one thread."
    for mode in ShuffleMode:
        epoch = Plan(catalog, PlanSpec(seed=1, shuffle=Shuffle(mode=mode), batch_size=_BATCH)).epoch(1)
        rounds = range(settings.repeats)
        walks = [_walk_ns(epoch, draws.randrange(records - walked), walked) for _ in rounds]
        yield figure(f"walk, {mode.value}", "ns a record", walks, note)
        jumps = [_batch_ms(epoch, draws.randrange(epoch.steps)) for _ in rounds for _ in range(_BATCHES)]
        yield figure(f"a random batch, {mode.value}", "ms", jumps, note)


def _catalog(records: int, shards: int) -> Catalog:
    share, more = divmod(records, shards)
    return Catalog(
        shards=tuple(
            ShardEntry(name=f"shard-{place:08d}", records=share + (place < more), size_bytes=0, digest=f"{place:032x}")
            for place in range(shards)
        )
    )


def _walk_ns(epoch: EpochPlan, first: int, records: int) -> float:
    begun = time.perf_counter_ns()
    seen = sum(len(slots) for slots, _, _ in islice(walk(epoch, 0, first), -(-records // CHUNK)))
    return (time.perf_counter_ns() - begun) / seen


def _batch_ms(epoch: EpochPlan, step: int) -> float:
    begun = time.perf_counter_ns()
    epoch.catalog.locate(epoch.ids(0, *epoch.batch_slots(0, step)))
    return (time.perf_counter_ns() - begun) / 1e6


def padding_figures(settings: CostsSettings) -> Iterator[Figure]:
    """Yield the padding of token batches, beside as many batches of random records."""
    records = 20_000 if settings.quick else 200_000
    drawn = np.exp(np.random.default_rng(1).normal(np.log(_MEDIAN), _SIGMA, records))
    lengths = np.clip(drawn, 1, _LONGEST).astype(np.int32)
    note = f"{records:,} records, lengths log-normal with median {_MEDIAN} and sigma {_SIGMA}, at most {_LONGEST}."
    cuts: dict[str, Padded | Packed] = {
        "by length": Padded(max_tokens=_MAX_TOKENS),
        "packed": Packed(row_tokens=_LONGEST, rows=_MAX_TOKENS // _LONGEST),
    }
    for (how, cut), ranks, pool in product(cuts.items(), (1, 8), (1024, 4096)):
        spec = PlanSpec(seed=1, batch_size=pool, world_size=ranks)
        plan = TokenPlan(Plan(_catalog(records, 1), spec), cut, lengths)
        found = [_padding(plan, lengths, number) for number in range(1 if settings.quick else settings.repeats)]
        layout = f"{how}, ranks {ranks}, pools of {pool}"
        yield figure(f"padding, {layout}", "% of places", (100 * ours for ours, _ in found), note)
        if how == "by length":
            shares = (ours / theirs for ours, theirs in found)
            yield figure(f"of random batches' padding, {layout}", "", shares, at_most=_MOST_OF_RANDOM, every=True)


def _padding(plan: TokenPlan, lengths: npt.NDArray[np.int32], number: int) -> tuple[float, float]:
    """Return the padded share of places in an epoch, and in as many random batches."""
    epoch = plan.epoch(number)
    ranks = plan.plan.spec.world_size
    tokens = places = 0
    for rank in range(ranks):
        step = 0
        while step < epoch.steps:
            group = epoch.group(step)
            batches = epoch.share(rank, group).batches
            tokens += sum(batch.tokens for batch in batches)
            places += sum(batch.height * batch.width for batch in batches)
            step += group.batches
    shuffled = np.array_split(np.random.default_rng(number).permutation(len(lengths)), epoch.steps * ranks)
    return 1.0 - tokens / places, padding_waste(lengths, shuffled)


_REQUIRED_PER_S: Final = 80_000
_RECORD_BYTES: Final = 3000
_WINDOW: Final = Window(warm_up_bytes=100_000_000, sample_bytes=400_000_000, least_ns=2_000_000_000)


def examples_figures(settings: CostsSettings) -> Iterator[Figure]:
    """Yield the rates in global order and in shard order."""
    data = DataSpec(kind="example", record_bytes=_RECORD_BYTES, records=20_000 if settings.quick else 300_000)
    scenario = Scenario(data=data, batch_records=256, paper_records=1, message_bytes=MESSAGE_BYTES)
    orders = ("global", "shard")
    subjects = [Loader(order=order) for order in orders]
    window = QUICK_WINDOW if settings.quick else _WINDOW
    with prepared(data, settings.data) as directory:
        runs = list(run_rounds(scenario, directory, subjects, rounds=settings.repeats, window=window))
    for order in orders:
        yield figure(
            f"Examples to one rank, {order} order",
            "records/s",
            (run.value("records/s") for run in runs if run.subject == f"emlio-{order}"),
            f"Examples of {_RECORD_BYTES} image bytes and a label, both fields decoded, CRC32C of every record checked.",
            at_least=_REQUIRED_PER_S,
        )
