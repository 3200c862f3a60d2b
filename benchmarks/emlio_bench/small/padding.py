"""`emlio-bench padding`: the padding in token batches, beside batches of random records.

Covers: batches by length and packed rows of imagined records, over numbers of ranks and sizes of
pools; the time to compute them; checks that every record came once, in equally many batches on all
ranks, within the bound. Does not cover: reading records.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.packed import Packed
from emlio.planner.padded import Padded
from emlio.planner.plan import Plan, PlanSpec
from emlio.planner.token_epoch import TokenEpoch, TokenShare
from emlio.planner.token_lengths import padding_waste
from emlio.planner.token_plan import TokenPlan
from emlio.progress import Progress
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.settings import PaddingSettings

__all__ = ["run_padding"]

_MEDIAN: Final = 200
_SIGMA: Final = 0.9
_LONGEST: Final = 4096

_QUICK_RECORDS: Final = 20_000

_MOST_OF_RANDOM: Final = 0.5
"""The most padding of batches by length, as a share of the padding of random batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The kind of batches, the number of ranks, and the records of a rank in a pool."""

    cut: Padded | Packed
    world: int
    pool: int

    def __str__(self) -> str:
        how = "by length" if isinstance(self.cut, Padded) else f"packed {self.cut.rows} x {self.cut.row_tokens}"
        ranks = "1 rank" if self.world == 1 else f"{self.world} ranks"
        return f"{how}, {ranks}, pools of {self.pool}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The measurements of one epoch, over all ranks.

    Attributes:
        padding: share of all places that hold no token.
        random: share of padding in as many batches of random records.
        seconds: time for the number of steps and the batches of the first rank.
        astray: records with missing tokens, or with more tokens than planned.
        uneven: ranks whose number of batches differs from the number of steps.
        beyond: batches with more places than allowed.
    """

    padding: float
    random: float
    seconds: float
    astray: int
    uneven: int
    beyond: int

    @property
    def part_of_random(self) -> float:
        """Padding as a share of the padding of random batches; 0 if there is no padding."""
        return self.padding / self.random if self.padding else 0.0


def run_padding(settings: PaddingSettings) -> Results:
    """Measure another epoch of each layout in each round."""
    records = min(settings.records, _QUICK_RECORDS) if settings.quick else settings.records
    repeats = 1 if settings.quick else settings.repeats
    if settings.pack > settings.max_tokens:
        raise ConfigError(f"--pack must be at most --max-tokens, which is {settings.max_tokens}, got {settings.pack}")
    cuts = (
        Padded(max_tokens=settings.max_tokens),
        Packed(row_tokens=settings.pack, rows=settings.max_tokens // settings.pack),
    )
    layouts = [
        _Layout(cut=cut, world=world, pool=pool) for cut in cuts for world in settings.worlds for pool in settings.pools
    ]
    lengths = _lengths(records)
    seen: dict[_Layout, list[_Seen]] = {layout: [] for layout in layouts}
    with Progress("epochs", repeats * len(layouts)) as bar:
        for epoch in range(repeats):
            for layout in layouts:
                seen[layout].append(_look(layout, lengths, epoch))
                bar.add(1)
    return Results(
        benchmark="padding",
        environment=read_environment(None),
        settings=(("records", str(records)), ("max_tokens", str(settings.max_tokens)), ("pack", str(settings.pack))),
        figures=(*_figures(seen, records), *_checks([one for found in seen.values() for one in found])),
    )


def _lengths(records: int) -> npt.NDArray[np.int32]:
    drawn = np.exp(np.random.default_rng(1).normal(np.log(_MEDIAN), _SIGMA, records))
    return np.clip(drawn, 1, _LONGEST).astype(np.int32)


def _look(layout: _Layout, lengths: npt.NDArray[np.int32], number: int) -> _Seen:
    shard = ShardEntry(name="imagined", records=len(lengths), size_bytes=0, digest="0" * 32)
    spec = PlanSpec(seed=1, batch_size=layout.pool, world_size=layout.world)
    epoch = TokenPlan(Plan(Catalog(shards=(shard,)), spec), layout.cut, lengths).epoch(number)
    begun = time.perf_counter()
    steps = epoch.steps
    seconds = time.perf_counter() - begun
    came = np.zeros(len(lengths), dtype=np.int64)
    tokens = places = uneven = beyond = 0
    for rank in range(layout.world):
        batches = 0
        begun = time.perf_counter()
        shares = list(_shares(epoch, rank))
        seconds += time.perf_counter() - begun if not rank else 0.0
        for share in shares:
            for batch in share.batches:
                np.add.at(came, share.ids[batch.records], batch.ends - batch.begins)
                tokens += batch.tokens
                places += batch.height * batch.width
                beyond += batch.height * batch.width > _room(layout.cut)
            batches += len(share.batches)
        uneven += batches != steps
    random = np.array_split(np.random.default_rng(number).permutation(len(lengths)), steps * layout.world)
    too_often = int(np.count_nonzero(came > lengths))
    return _Seen(
        padding=1.0 - tokens / places,
        random=padding_waste(lengths, random),
        seconds=seconds,
        astray=int(np.count_nonzero(came < lengths)) + max(too_often - epoch.repeated, 0),
        uneven=uneven,
        beyond=beyond,
    )


def _shares(epoch: TokenEpoch, rank: int) -> Iterator[TokenShare]:
    step = 0
    while step < epoch.steps:
        group = epoch.group(step)
        yield epoch.share(rank, group)
        step += group.batches


def _room(cut: Padded | Packed) -> int:
    return cut.max_tokens if isinstance(cut, Padded) else cut.rows * cut.row_tokens


def _figures(seen: Mapping[_Layout, Sequence[_Seen]], records: int) -> Iterator[Figure]:
    note = f"{records:,} records, lengths log-normal with median {_MEDIAN} and sigma {_SIGMA}, at most {_LONGEST}."
    for layout, found in seen.items():
        name = f"padding, {layout}"
        yield Figure(name=name, unit="% of places", values=tuple(100 * one.padding for one in found), note=note)
    for layout, found in seen.items():
        if isinstance(layout.cut, Padded):
            name = f"padding of as many random batches, {layout}"
            yield Figure(name=name, unit="% of places", values=tuple(100 * one.random for one in found))
            yield Figure(
                name=f"part of random batches' padding, {layout}",
                unit="of it",
                values=tuple(one.part_of_random for one in found),
                at_most=_MOST_OF_RANDOM,
                every=True,
            )
    note = "The number of steps of all ranks, and the batches of one rank, on one core."
    for layout, found in seen.items():
        yield Figure(name=f"an epoch's plan, {layout}", unit="s", values=tuple(one.seconds for one in found), note=note)


def _checks(found: Sequence[_Seen]) -> Iterator[Figure]:
    for name, unit, values in (
        ("records that did not come once", "records", [one.astray for one in found]),
        ("ranks with another number of batches", "ranks", [one.uneven for one in found]),
        ("batches beyond their bound", "batches", [one.beyond for one in found]),
    ):
        note = "Of every layout and epoch."
        yield Figure(name=name, unit=unit, values=tuple(map(float, values)), at_most=0.0, every=True, note=note)
