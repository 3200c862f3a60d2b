"""Summaries of samples, with warnings about doubtful values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from emlio_bench.harness.results import Results, Run, neighbours
from emlio_bench.harness.spread import Spread, spread
from emlio_bench.harness.subject import BARE, LIMITS

__all__ = ["Row", "cpu_s_per_gb", "doubts", "summarise"]

_WIDE: Final = 0.3
"""The width, as a share of its median, above which a ratio is doubtful."""

_FEW_ROUNDS: Final = 5
_SHORT_S: Final = 0.9
_ABOVE_CEILING: Final = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All samples of one subject in one scenario.

    Attributes:
        scenario: name of the scenario.
        subject: name of the subject.
        rounds: number of samples.
        bytes_per_s: payload per second.
        records_per_s: records per second; None if there are no records.
        of_limit: bytes per second as a share of the limit's in the same round; None without a
            limit, or if this subject is a limit.
        of_bare: bytes per second as a share of the bare socket pair's in the same round; None
            without that pair, and for the pair itself and a limit.
        cpu_of_bare: processor seconds of both sides for a gigabyte as a multiple of the bare socket pair's in the same
            round; None as above.
        sender_s_per_gb: processor seconds of the sender for a gigabyte.
        receiver_s_per_gb: processor seconds of the receiver for a gigabyte.
        first_batch_ms: time from the loader's construction to its first batch; None without a
            loader.
        protection: protection of the records in transit; empty without a loader.
        shortest_s: length of the shortest window.
    """

    scenario: str
    subject: str
    rounds: int
    bytes_per_s: Spread
    records_per_s: Spread | None
    of_limit: Spread | None
    of_bare: Spread | None
    cpu_of_bare: Spread | None
    sender_s_per_gb: Spread
    receiver_s_per_gb: Spread
    first_batch_ms: Spread | None
    protection: str
    shortest_s: float


def summarise(results: Results) -> tuple[Row, ...]:
    """Return a row for each subject of each scenario, in the order of their first measurement."""
    rows: list[Row] = []
    for scenario in dict.fromkeys(run.scenario for run in results.runs):
        runs = [run for run in results.runs if run.scenario == scenario]
        first_round = [run for run in runs if run.round == runs[0].round]
        names = dict.fromkeys(run.subject for run in [*first_round, *runs])
        limit = next((name for name in names if name in LIMITS), None)
        rows += [_row(runs, name, limit) for name in names]
    return tuple(rows)


def _row(runs: Sequence[Run], name: str, limit: str | None) -> Row:
    own = [run for run in runs if run.subject == name]

    def of(quantity: str) -> Spread | None:
        found = [run.values[quantity] for run in own if quantity in run.values]
        return spread(found) if found else None

    def known(quantity: str) -> Spread:
        return spread([run.values[quantity] for run in own])

    return Row(
        scenario=own[0].scenario,
        subject=name,
        rounds=len(own),
        bytes_per_s=known("bytes/s"),
        records_per_s=of("records/s"),
        of_limit=_ratios(runs, own, limit, _speed),
        of_bare=_ratios(runs, own, BARE, _speed),
        cpu_of_bare=_ratios(runs, own, BARE, cpu_s_per_gb),
        sender_s_per_gb=known("sender, CPU s/GB"),
        receiver_s_per_gb=known("receiver, CPU s/GB"),
        first_batch_ms=of("first batch, ms"),
        protection=", ".join(dict.fromkeys(run.words["protection"] for run in own if "protection" in run.words)),
        shortest_s=known("length, s").least,
    )


def _speed(run: Run) -> float:
    return run.value("bytes/s")


def cpu_s_per_gb(run: Run) -> float:
    """Return processor seconds of both sides for a gigabyte."""
    return run.value("sender, CPU s/GB") + run.value("receiver, CPU s/GB")


def _ratios(
    runs: Sequence[Run], own: Sequence[Run], other: str | None, quantity: Callable[[Run], float]
) -> Spread | None:
    """Return the ratios of `own` to the other subject; None for a limit.

    Ratios are taken within a round, so that later changes of the machine's speed do not matter.
    """
    if other is None or own[0].subject in (other, *LIMITS):
        return None
    ratios = [quantity(run) / quantity(beside) for run, beside in neighbours(runs, own[0].subject, other)]
    return spread(ratios) if ratios else None


def doubts(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return reasons to doubt the rows, one sentence each."""
    if not rows:
        return ()
    found: list[str] = []
    rounds = min(row.rounds for row in rows)
    if rounds < _FEW_ROUNDS:
        found.append(f"only {rounds} round(s): {_FEW_ROUNDS} or more make a median")
    shortest = min(row.shortest_s for row in rows)
    if shortest < _SHORT_S:
        found.append(f"the shortest sample took {shortest:.2f} s: below {_SHORT_S:g} s chance decides")
    for row in rows:
        for ratio, what in ((row.of_limit, "the limit"), (row.of_bare, "the bare pair")):
            if ratio is None:
                continue
            if ratio.width > _WIDE:
                found.append(
                    f"{row.subject}, {row.scenario}: its part of {what} wandered from {ratio.least:.0%} to "
                    f"{ratio.most:.0%}: measure longer or on a quieter machine"
                )
            if ratio.median > _ABOVE_CEILING and row.subject != BARE:
                found.append(
                    f"{row.subject}, {row.scenario}: {ratio.median:.0%} of {what}, more than anything built on it can have"
                )
    return tuple(found)
