"""What many runs come to, as a table.

Covers: the summary by kind of fault, Markdown and JSON. Pure. Does not cover: a single run (tests.e2e.chaos.run).
"""

import dataclasses
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from emlio_bench.harness.environment import Environment
from tests.e2e.chaos.faults import Kind
from tests.e2e.chaos.known import RECORDS
from tests.e2e.chaos.recovery import Recovery
from tests.e2e.chaos.run import RunResult
from tests.e2e.chaos.stage import Memory

__all__ = ["Sample", "as_json", "as_markdown"]

_CAPTION = """\
Recovery is the time from the moment that service was possible again to the next batch of the slowest rank that
waited. At one daemon of two that moment is the fault itself, since the other holds the same data; at both, or at a
rank, it is the fault's end; for a process that was killed, the moment that the new one begins to make its loader.
Where no daemon can be reached then, it is the first moment when one can. A fault is felt if a rank waited 100 ms or
more for one batch; those that are not count as 0 ms. The longest wait is for one batch, by the rank's own clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a daemon held after the run of that seed, so many minutes after the beginning."""

    minutes: float
    seed: int
    memory: Memory


def as_markdown(results: Sequence[RunResult], world: Environment, memory: Sequence[Sample] = ()) -> str:
    """The table, the totals, the machine, and what went wrong."""
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
    return (
        "\n".join([*lines, "", _CAPTION, "", *_totals(results), _machine(world), *_failures(results), *_memory(memory)])
        + "\n"
    )


def _machine(world: Environment) -> str:
    return (
        f"{world.cpu or 'a processor that does not say its name'}, {world.cores} cores, {world.memory_bytes / 1e9:.1f} GB, "
        f"Linux {world.kernel}; {world.python}, pyzmq {world.pyzmq}, libzmq {world.libzmq}, emlio {world.emlio} at "
        f"{world.commit or 'an unknown commit'}."
    )


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
        "fewer than two faults took place, since the job was done before.",
    ]


def _failures(results: Sequence[RunResult]) -> list[str]:
    failed = [result for result in results if not result.is_good]
    return ["", *(f"* seed {result.seed}: {result.troubles[0]}" for result in failed)] if failed else []


def _memory(samples: Sequence[Sample]) -> list[str]:
    """Each daemon's process that lived through several runs: what it held after the first, at most, and after the last."""
    lines: list[str] = []
    for host in sorted({sample.memory.host for sample in samples}):
        mine = [sample for sample in samples if sample.memory.host == host]
        begins = [number for number, sample in enumerate(mine) if sample.memory.runs == 1]
        for begin, end in pairwise([*begins, len(mine)]):
            first, last = mine[begin], mine[end - 1]
            most = max(sample.memory.resident_bytes for sample in mine[begin:end])
            lines.append(
                f"| {host} | {first.minutes:.1f} to {last.minutes:.1f} | {last.memory.runs} "
                f"| {first.memory.resident_bytes / 1e6:.1f} | {most / 1e6:.1f} | {last.memory.resident_bytes / 1e6:.1f} "
                f"| {first.memory.threads} to {last.memory.threads} "
                f"| {first.memory.descriptors} to {last.memory.descriptors} |"
            )
    head = "| daemon | minutes | runs | MB after the first | most | after the last | threads | descriptors |"
    return ["", head, "|---:|---:|---:|---:|---:|---:|---:|---:|", *lines] if lines else []


def as_json(results: Sequence[RunResult], world: Environment, memory: Sequence[Sample] = ()) -> str:
    """All of it, for machines."""
    document = {
        "version": 1,
        "environment": dataclasses.asdict(world),
        "runs": [dataclasses.asdict(result) for result in results],
        "memory": [dataclasses.asdict(sample) for sample in memory],
    }
    return json.dumps(document, indent=1) + "\n"
