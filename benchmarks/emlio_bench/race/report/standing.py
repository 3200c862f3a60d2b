"""The results of each system in each contest: its runs as medians with their extremes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Final

from emlio_bench.harness.contest import Contest, Corpus, Entrant
from emlio_bench.harness.results import Results, Run
from emlio_bench.harness.spread import Spread, Value, ratio, spread
from emlio_bench.race.quantity import Quantity

__all__ = [
    "BARE",
    "DEFAULT",
    "OURS",
    "Standing",
    "best_of",
    "by_distance",
    "energy_ratio",
    "entrants_of",
    "full_shuffle_blocks",
    "limits",
    "our_row",
    "same_round_ratio",
    "shown",
    "standings",
    "streams_of",
]

OURS: Final = "emlio"
BARE: Final = "zeromq"
DEFAULT: Final = "default"

_RIVAL_FAMILIES: Final = ("files", "objects", "http", "service")
_MIXED: Final = 0.95
"""A batch mixes as well as a full shuffle if its records come from at least this share of as many blocks."""
_IPERF: Final = "iperf3"
_BLOCK_RECORDS: Final = 640
_LEAST_FULL_BLOCKS: Final = 1.5
"""With fewer blocks in a fully shuffled batch, nothing can be said about mixing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All runs of one entrant in one contest.

    Attributes:
        contest: the contest.
        entrant: the entrant.
        runs: its runs.
        full_blocks: blocks that the records of a batch come from in a full shuffle.
    """

    contest: Contest
    entrant: Entrant
    runs: tuple[Run, ...]
    full_blocks: float

    def of(self, quantity: Quantity) -> Spread | None:
        """Return the spread of a quantity; None if no run has it."""
        found = [run.values[quantity] for run in self.runs if run.failure is None and quantity in run.values]
        return spread(found) if found else None

    def told(self, name: str) -> str:
        """Return what the runs say of something, each word once."""
        return " and ".join(dict.fromkeys(run.words[name] for run in self.runs if name in run.words))

    @property
    def exact(self) -> str:
        """Says if each record came once: "yes", what is wrong, or "" if no epoch was whole."""
        wrong = [run.words["exact"] for run in self.runs if is_wrong(run)]
        return wrong[0] if wrong else self.told("exact")

    @property
    def failures(self) -> tuple[str, ...]:
        """Reasons of runs that failed."""
        return tuple(dict.fromkeys(run.failure for run in self.runs if run.failure is not None))

    @property
    def is_wrong(self) -> bool:
        """True if records were lost or repeated."""
        return any(map(is_wrong, self.runs))

    @property
    def is_ours(self) -> bool:
        """True for this loader at its defaults."""
        return self.who == (OURS, DEFAULT)

    @property
    def who(self) -> tuple[str, str]:
        """Subject and setting."""
        return self.entrant.subject, self.entrant.setting

    @property
    def is_rival(self) -> bool:
        """True for another system that reads over the link."""
        return self.entrant.family in _RIVAL_FAMILIES

    @property
    def mixes_as_well(self) -> bool | None:
        """True if its batches mix as a full shuffle does; None if this cannot be told."""
        blocks = self.of(Quantity.BLOCKS)
        if blocks is None or self.full_blocks < _LEAST_FULL_BLOCKS:
            return None
        return blocks.median >= _MIXED * self.full_blocks

    @property
    def order(self) -> tuple[bool, float]:
        """Key that sorts by first epoch; unknown ones come last."""
        first = self.of(Quantity.FIRST_EPOCH)
        return (True, float("inf")) if first is None else (first.bound, first.median)


def is_wrong(run: Run) -> bool:
    """Return whether records of a run were lost or repeated."""
    return run.words.get("exact", "").startswith("no")


def standings(race: Results) -> tuple[Standing, ...]:
    """Return a row for each entrant of each contest that has run."""
    rows: list[Standing] = []
    for contest in race.contests:
        blocks = full_shuffle_blocks(contest.corpus, contest.batch)
        for entrant in race.entrants:
            who = entrant.subject, entrant.setting
            runs = tuple(run for run in race.runs if run.scenario == contest.name and run.who == who)
            if runs:
                rows.append(Standing(contest=contest, entrant=entrant, runs=runs, full_blocks=blocks))
    return tuple(rows)


def entrants_of(race: Results) -> tuple[Entrant, ...]:
    """Return the entrants; one of which all runs failed counts as one that could not run."""
    found: list[Entrant] = []
    for entrant in race.entrants:
        runs = [run for run in race.runs if run.who == (entrant.subject, entrant.setting)]
        failed = entrant.missing is None and runs and all(run.failure is not None for run in runs)
        found.append(replace(entrant, missing=f"all its runs failed: {runs[0].failure}") if failed else entrant)
    return tuple(found)


def full_shuffle_blocks(corpus: Corpus, batch: int) -> float:
    """Return how many blocks the records of a batch of a full shuffle come from, on average."""
    sizes = [batch] * (corpus.records // batch) + [corpus.records % batch] * bool(corpus.records % batch)
    by_size = {size: _distinct_blocks(corpus.records, size) for size in set(sizes)}
    return sum(by_size[size] for size in sizes) / len(sizes)


def _distinct_blocks(records: int, drawn: int) -> float:
    ways, blocks = comb(records, drawn), [_BLOCK_RECORDS] * (records // _BLOCK_RECORDS)
    blocks += [records % _BLOCK_RECORDS] * bool(records % _BLOCK_RECORDS)
    absent = {size: comb(records - size, drawn) / ways for size in set(blocks)}
    return sum(1 - absent[size] for size in blocks)


def our_row(rows: Sequence[Standing], contest: Contest) -> Standing | None:
    """Return this loader's row in a contest."""
    return next((row for row in rows if row.is_ours and row.contest == contest), None)


def best_of(rows: Iterable[Standing]) -> Standing | None:
    """Return the row with the shortest first epoch."""
    ran = [row for row in rows if row.of(Quantity.FIRST_EPOCH) is not None]
    return min(ran, key=lambda row: row.order, default=None)


def shown(rows: Sequence[Standing]) -> tuple[Standing, ...]:
    """Return each system at its best setting and at its defaults, ours first, then by first epoch."""
    chosen: list[Standing] = []
    for subject in dict.fromkeys(row.entrant.subject for row in rows if row.entrant.family != "limit"):
        own = [row for row in rows if row.entrant.subject == subject]
        defaults = next((row for row in own if row.entrant.setting == DEFAULT), own[0])
        chosen += [row for row in own if row is best_of(own) or row is defaults]
    return tuple(sorted(chosen, key=lambda row: (not row.is_ours, row.order)))


def limits(rows: Iterable[Standing], contest: Contest) -> dict[int, Standing]:
    """Return iperf3's rows in a contest, by number of streams."""
    return {
        streams_of(row.entrant.setting): row
        for row in rows
        if row.entrant.subject == _IPERF and row.contest == contest and row.of(Quantity.BIT_RATE) is not None
    }


def streams_of(setting: str) -> int:
    """Return the number that a setting begins with; 0 for none."""
    word = setting.partition(" ")[0]
    return int(word) if word.isascii() and word.isdigit() else 0


def by_distance(contests: Iterable[Contest]) -> tuple[tuple[Contest, ...], ...]:
    """Group contests that differ in their round trip alone, each group sorted by it."""
    groups: dict[Contest, list[Contest]] = {}
    for contest in contests:
        groups.setdefault(replace(contest, name="all", words="", rtt_ns=0, limit_ns=1), []).append(contest)
    return tuple(tuple(sorted(group, key=lambda contest: contest.rtt_ns)) for group in groups.values())


def same_round_ratio(
    upper: Standing, lower: Standing, quantity: Quantity, lower_quantity: Quantity | None = None
) -> Spread | None:
    """Return the ratio of two subjects, taken within rounds; None if they share no round.

    A ratio within a round does not depend on later changes of the machine's speed.
    """
    if lower.contest != upper.contest:
        return None
    above, below = _by_round(upper, quantity), _by_round(lower, lower_quantity or quantity)
    found = [
        Value(value=value.value / base.value, beyond=value.beyond)
        for number, value in above.items()
        if (base := below.get(number)) is not None and not base.beyond and base.value > 0
    ]
    return spread(found) if found else None


def _by_round(row: Standing, quantity: Quantity) -> dict[int, Value]:
    return {
        run.round: run.values[quantity]
        for run in row.runs
        if run.failure is None and not is_wrong(run) and quantity in run.values
    }


def energy_ratio(upper: Standing, lower: Standing) -> Spread | None:
    """Return the ratio of the energies of an epoch; None if one is not known, or is of records lost or repeated."""
    above, below = upper.of(Quantity.ENERGY), lower.of(Quantity.ENERGY)
    if above is None or below is None or below.beyond or not below.least or upper.is_wrong or lower.is_wrong:
        return None
    return ratio(above, below)
