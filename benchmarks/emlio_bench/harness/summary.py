"""Summaries of samples, with warnings about doubtful values.

Covers: medians with their spread, ratios within rounds, reasons to doubt a figure. Pure. Does not
cover: printing (emlio_bench.harness.report), plots (emlio_bench.harness.plot).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.results import Results, Sample
from emlio_bench.harness.spread import Spread, spread
from emlio_bench.harness.subject import BARE, LIMITS

__all__ = ["Row", "doubts", "summarise"]

_WIDE: Final = 0.3
"""The width, as a share of its median, above which a ratio is doubtful."""

_FEW_ROUNDS: Final = 5
_SHORT_NS: Final = 900_000_000
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
        shortest_ns: length of the shortest window.
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
    shortest_ns: int


def summarise(results: Results) -> tuple[Row, ...]:
    """Return a row for each subject of each scenario, in the order of their first measurement."""
    rows: list[Row] = []
    for scenario in dict.fromkeys(sample.scenario for sample in results.samples):
        samples = [sample for sample in results.samples if sample.scenario == scenario]
        first_round = [sample for sample in samples if sample.round == samples[0].round]
        names = dict.fromkeys(sample.subject for sample in [*first_round, *samples])
        limit = next((name for name in names if name in LIMITS), None)
        for name in names:
            rows.append(_row(samples, name, limit))  # noqa: PERF401  # one row at a time reads better
    return tuple(rows)


def _row(samples: Sequence[Sample], name: str, limit: str | None) -> Row:
    own = [sample for sample in samples if sample.subject == name]
    measured = [sample.measured for sample in own]
    first = [value.first_batch_ns / 1e6 for value in measured if value.first_batch_ns is not None]
    return Row(
        scenario=own[0].scenario,
        subject=name,
        rounds=len(own),
        bytes_per_s=spread([value.bytes_per_s for value in measured]),
        records_per_s=spread([value.records_per_s for value in measured]) if measured[0].records else None,
        of_limit=_ratios(samples, own, limit),
        of_bare=_ratios(samples, own, BARE),
        cpu_of_bare=_ratios(samples, own, BARE, _cpu),
        sender_s_per_gb=spread([value.sender_cpu_ns / value.payload_bytes for value in measured]),
        receiver_s_per_gb=spread([value.receiver_cpu_ns / value.payload_bytes for value in measured]),
        first_batch_ms=spread(first) if first else None,
        protection=", ".join(dict.fromkeys(value.protection for value in measured if value.protection)),
        shortest_ns=min(value.elapsed_ns for value in measured),
    )


def _speed(measured: Measurement) -> float:
    return measured.bytes_per_s


def _cpu(measured: Measurement) -> float:
    return (measured.sender_cpu_ns + measured.receiver_cpu_ns) / measured.payload_bytes


def _ratios(
    samples: Sequence[Sample],
    own: Sequence[Sample],
    other: str | None,
    quantity: Callable[[Measurement], float] = _speed,
) -> Spread | None:
    """Return the ratios of `own` to the other subject; None for a limit.

    Ratios are taken within a round, so that later changes of the machine's speed do not matter.
    """
    if other is None or own[0].subject in (other, *LIMITS):
        return None
    theirs = {sample.round: quantity(sample.measured) for sample in samples if sample.subject == other}
    ratios = [quantity(sample.measured) / theirs[sample.round] for sample in own if sample.round in theirs]
    return spread(ratios) if ratios else None


def doubts(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return reasons to doubt the rows, one sentence each."""
    if not rows:
        return ()
    found: list[str] = []
    rounds = min(row.rounds for row in rows)
    if rounds < _FEW_ROUNDS:
        found.append(f"only {rounds} round(s): {_FEW_ROUNDS} or more make a median")
    shortest = min(row.shortest_ns for row in rows)
    if shortest < _SHORT_NS:
        found.append(f"the shortest sample took {shortest / 1e9:.2f} s: below {_SHORT_NS / 1e9:g} s chance decides")
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
