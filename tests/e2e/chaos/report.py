"""What many runs come to, as a table.

Covers: the summary by kind of fault, Markdown and JSON. Pure. Does not cover: a single run (tests.e2e.chaos.run).
"""

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tests.e2e.chaos.faults import Kind
from tests.e2e.chaos.known import RECORDS
from tests.e2e.chaos.recovery import Recovery
from tests.e2e.chaos.run import RunResult

__all__ = ["as_document", "as_markdown"]

_CAPTION = """\
Recovery is the time from the moment that service was possible again to the next batch of the slowest rank that
waited. At one daemon of two that moment is the fault itself, since the other holds the same data; at both, or at a
rank, it is the fault's end; for a process that was killed, the moment that the new one begins to make its loader.
Where no daemon can be reached then, it is the first moment when one can. A fault is felt if a rank waited 100 ms or
more for one batch; those that are not count as 0 ms. The longest wait is for one batch, by the rank's own clock."""


def as_markdown(results: Sequence[RunResult]) -> str:
    """The table, the totals, and what went wrong."""
    by_kind: dict[str, list[Recovery]] = defaultdict(list)
    for result in results:
        for recovery in result.recoveries:
            by_kind[recovery.kind].append(recovery)
    lines = [
        "| fault | what happens | times | felt | recovery, median of all | of those felt | most | longest wait |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for kind in Kind:
        found = by_kind.get(kind.label, [])
        if found:
            felt = [recovery.recovered_ms for recovery in found if recovery.felt]
            median = statistics.median(recovery.recovered_ms for recovery in found)
            lines.append(
                f"| {kind.label} | {kind.words} | {len(found)} | {len(felt)} | {median:,.0f} ms "
                f"| {_ms(statistics.median(felt) if felt else None)} | {_ms(max(felt, default=None))} "
                f"| {_ms(max((recovery.waited_ms for recovery in found if recovery.felt), default=None))} |"
            )
    return "\n".join([*lines, "", _CAPTION, "", *_totals(results), *_failures(results)]) + "\n"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms"


def _totals(results: Sequence[RunResult]) -> list[str]:
    total = {
        name: sum(getattr(result, name) for result in results)
        for name in ("delivered", "lost", "repeated", "disordered", "changed", "hangs")
    }
    faults = sum(len(result.recoveries) for result in results)
    seconds = [result.seconds for result in results]
    fewer = sum(len(result.recoveries) < 2 for result in results)
    return [
        f"{len(results):,} runs of {RECORDS:,} records and 2 epochs, {faults:,} faults; "
        f"{total['delivered']:,} records delivered, {total['lost']:,} lost, {total['repeated']:,} repeated, "
        f"{total['disordered']:,} out of order, {total['changed']:,} with another content; {total['hangs']:,} hangs; "
        f"{sum(not result.is_good for result in results):,} runs not as they must be.",
        f"A run took {statistics.median(seconds):.1f} s in the median and {max(seconds):.1f} s at most. In {fewer:,} of them "
        "fewer than two faults took place, since the job was done before or the place was taken by another fault.",
    ]


def _failures(results: Sequence[RunResult]) -> list[str]:
    failed = [result for result in results if not result.is_good]
    return ["", *(f"* seed {result.seed}: {result.troubles[0]}" for result in failed)] if failed else []


def as_document(results: Sequence[RunResult]) -> dict[str, Any]:
    """All of it, for machines."""
    return {"version": 1, "runs": [dataclasses.asdict(result) for result in results]}
