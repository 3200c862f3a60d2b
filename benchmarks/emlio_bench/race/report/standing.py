"""The standings of a race: a row for each contest and entrant.

Covers: medians over rounds, the best of a system's settings, the mixing of a batch compared with a
full shuffle, limits by number of streams, contests that differ only in their round trip. Pure. Does
not cover: whether figures are good enough (emlio_bench.race.report.verdict), words and plots.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Final

from emlio.units import format_size
from emlio_bench.harness.comparison import Compared
from emlio_bench.harness.spread import Spread, number
from emlio_bench.race.outcome import Contest, Entrant, Race, Run
from emlio_bench.race.records.corpus import Corpus
from emlio_bench.race.report.quantity import MEANINGS, Quantity, exactness, over_runs

__all__ = [
    "BARE",
    "DEFAULT",
    "MIXED",
    "OURS",
    "RIVAL_FAMILIES",
    "Standing",
    "best_of",
    "by_distance",
    "entrants_of",
    "full_shuffle_blocks",
    "limits",
    "race_figures",
    "shown",
    "standings",
    "streams_of",
]

OURS: Final = "emlio"
"""The subject that the others are compared with, at its defaults."""
BARE: Final = "zeromq"
"""The limit of a system built on ZeroMQ sockets."""
DEFAULT: Final = "default"
RIVAL_FAMILIES: Final = ("files", "objects", "http", "service")
"""The families of other systems that do the same work."""
MIXED: Final = 0.95
"""The share of a full shuffle's blocks above which a batch counts as equally well mixed."""

_COMPARED: Final = (
    Quantity.FIRST_EPOCH,
    Quantity.LATER_EPOCHS,
    Quantity.FIRST_BATCH,
    Quantity.BIT_RATE,
    Quantity.TRAINING_CPU,
    Quantity.STORAGE_CPU,
    Quantity.PEAK_MEMORY,
    Quantity.ENERGY,
)
"""The quantities by which races are compared."""

_IPERF: Final = "iperf3"
_BLOCK_RECORDS: Final = 640
_LEAST_FULL_BLOCKS: Final = 1.5
"""With fewer blocks, almost all records are in one block, and every order looks well mixed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One entrant in one contest.

    Attributes:
        contest: the contest.
        entrant: the entrant.
        runs: all runs, also those that failed.
        spreads: known values, by quantity.
        exact: see `exactness`.
        memory: "PSS", or "RSS", which counts shared pages in each process.
        methods: sources of its energy figures.
        full_blocks: value of `Quantity.BLOCKS` for a full shuffle.
    """

    contest: Contest
    entrant: Entrant
    runs: tuple[Run, ...]
    spreads: tuple[tuple[Quantity, Spread], ...]
    exact: str
    memory: str
    methods: tuple[str, ...]
    full_blocks: float

    def of(self, quantity: Quantity) -> Spread | None:
        """Return the values of a quantity; None if they are unknown."""
        return next((extent for name, extent in self.spreads if name is quantity), None)

    @property
    def failures(self) -> tuple[str, ...]:
        """Distinct failures."""
        return tuple(dict.fromkeys(run.failure for run in self.runs if run.failure is not None))

    @property
    def is_wrong(self) -> bool:
        """True if a complete epoch lost or repeated records."""
        return self.exact.startswith("no")

    @property
    def is_ours(self) -> bool:
        """True if this is the row that the others are compared with."""
        return self.entrant.subject == OURS and self.entrant.setting == DEFAULT

    @property
    def is_rival(self) -> bool:
        """True if this is a system other than EMLIO."""
        return self.entrant.family in RIVAL_FAMILIES

    @property
    def mixes_as_well(self) -> bool | None:
        """True if it mixes as well as a full shuffle; None if unknown."""
        blocks = self.of(Quantity.BLOCKS)
        if blocks is None or self.full_blocks < _LEAST_FULL_BLOCKS:
            return None
        return blocks.median >= MIXED * self.full_blocks

    @property
    def order(self) -> tuple[bool, float]:
        """Sort key by first epoch: whether it was cut, and how long it took."""
        first = self.of(Quantity.FIRST_EPOCH)
        return (True, float("inf")) if first is None else (first.bound, first.median)


def standings(race: Race) -> tuple[Standing, ...]:
    """Return a row for each contest and entrant with a run, in the order of both."""
    rows: list[Standing] = []
    for contest in race.contests:
        of_contest = [run for run in race.runs if run.contest == contest.name]
        blocks = full_shuffle_blocks(contest.corpus, contest.batch)
        for entrant in race.entrants:
            runs = [run for run in of_contest if (run.subject, run.setting) == (entrant.subject, entrant.setting)]
            if runs:
                rows.append(_standing(contest, entrant, runs, blocks))
    return tuple(rows)


def entrants_of(race: Race) -> tuple[Entrant, ...]:
    """Return all entrants; one whose runs all failed is marked as missing, with its first failure."""
    found: list[Entrant] = []
    for entrant in race.entrants:
        runs = [run for run in race.runs if (run.subject, run.setting) == (entrant.subject, entrant.setting)]
        failure = next((run.failure for run in runs if run.failure is not None), None)
        failed = entrant.missing is None and failure is not None and all(run.failure is not None for run in runs)
        found.append(replace(entrant, missing=f"all its runs failed: {failure}") if failed else entrant)
    return tuple(found)


def _standing(contest: Contest, entrant: Entrant, runs: Sequence[Run], blocks: float) -> Standing:
    finished = [run.finished for run in runs if run.finished is not None]
    found = [(quantity, over_runs(quantity, contest, runs)) for quantity in MEANINGS]
    methods = dict.fromkeys(run.energy.method for run in runs if run.energy is not None)
    return Standing(
        contest=contest,
        entrant=entrant,
        runs=tuple(runs),
        spreads=tuple((quantity, extent) for quantity, extent in found if extent is not None),
        exact=exactness(contest, runs),
        memory="PSS" if all(one.peak_pss_bytes for one in finished) else "RSS",
        methods=tuple(methods),
        full_blocks=blocks,
    )


def race_figures(race: Race) -> list[Compared]:
    """Return the figures by which a race is compared with another."""
    return [
        Compared(
            name=f"{row.contest.name}, {row.entrant.subject}, {row.entrant.setting}",
            words=quantity.value + ("" if meaning.unit == "B" else f", {meaning.unit}"),
            of=of,
            less=meaning.less,
            form=format_size if meaning.unit == "B" else number,
        )
        for row in standings(race)
        for quantity in _COMPARED
        if (meaning := MEANINGS[quantity]) and (of := row.of(quantity)) is not None
    ]


def full_shuffle_blocks(corpus: Corpus, batch: int) -> float:
    """Return the mean number of blocks of 640 records in a batch of a uniform random order."""
    sizes = [batch] * (corpus.records // batch) + [corpus.records % batch] * bool(corpus.records % batch)
    by_size = {size: _distinct_blocks(corpus.records, size) for size in set(sizes)}
    return sum(by_size[size] for size in sizes) / len(sizes)


def _distinct_blocks(records: int, drawn: int) -> float:
    """Return the expected number of distinct blocks among `drawn` records.

    It is the sum over blocks of the probability that a draw without replacement hits the block.
    """
    ways, blocks = comb(records, drawn), [_BLOCK_RECORDS] * (records // _BLOCK_RECORDS)
    blocks += [records % _BLOCK_RECORDS] * bool(records % _BLOCK_RECORDS)
    absent = {size: comb(records - size, drawn) / ways for size in set(blocks)}
    return sum(1 - absent[size] for size in blocks)


def best_of(rows: Iterable[Standing]) -> Standing | None:
    """Return the row with the shortest first epoch; complete rows come before cut ones."""
    ran = [row for row in rows if row.of(Quantity.FIRST_EPOCH) is not None]
    return min(ran, key=lambda row: row.order, default=None)


def shown(rows: Sequence[Standing]) -> tuple[Standing, ...]:
    """Return each system of one contest at its best setting and at its defaults.

    EMLIO's default comes first, then the fastest. Limits are left out.
    """
    chosen: list[Standing] = []
    for subject in dict.fromkeys(row.entrant.subject for row in rows if row.entrant.family != "limit"):
        own = [row for row in rows if row.entrant.subject == subject]
        defaults = next((row for row in own if row.entrant.setting == DEFAULT), own[0])
        chosen += [row for row in own if row is best_of(own) or row is defaults]
    return tuple(sorted(chosen, key=lambda row: (not row.is_ours, row.order)))


def limits(rows: Iterable[Standing], contest: Contest) -> dict[int, Standing]:
    """Return iperf3's rows in a contest, by the number of streams."""
    return {
        streams_of(row.entrant.setting): row
        for row in rows
        if row.entrant.subject == _IPERF and row.contest == contest and row.of(Quantity.BIT_RATE) is not None
    }


def streams_of(setting: str) -> int:
    """Return the number at the start of a limit's setting; 0 if there is none."""
    word = setting.partition(" ")[0]
    return int(word) if word.isascii() and word.isdigit() else 0


def by_distance(contests: Iterable[Contest]) -> tuple[tuple[Contest, ...], ...]:
    """Group contests that differ only in round trip, name, words and limit; sort by round trip."""
    groups: dict[Contest, list[Contest]] = {}
    for contest in contests:
        groups.setdefault(replace(contest, name="all", words="", rtt_ns=0, limit_ns=1), []).append(contest)
    return tuple(tuple(sorted(group, key=lambda contest: contest.rtt_ns)) for group in groups.values())
