"""Figure 1: the shares of reading, preprocessing and training in an epoch, in time and in energy.

A stage is what it adds to an epoch without it, so the three epochs must have the same number of
records: the cost of a record is not constant. sshfs keeps attributes of files for some time, and the
start weighs more in a short epoch.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from emlio.units import format_duration
from emlio_bench.harness.report import Table
from emlio_bench.harness.spread import Spread, number
from emlio_bench.paper.claims import row_of
from emlio_bench.paper.figures import Subject
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.report.standing import Standing

__all__ = ["STAGE_TASKS", "share_tables"]

STAGE_TASKS: Final = ("read", "decode", "resnet")
"""The tasks whose differences are the shares of an epoch."""

_SHARES: Final = ("read", "preprocess", "train")
_NOISE: Final = 0.05
"""The part of an epoch by which two runs of the same work may differ."""

_UNKNOWN: Final = "an epoch of one of the three tasks is missing or was cut"
_Read = Callable[[Standing], Spread | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """The shares of a subject at a round trip.

    Attributes:
        said: the shares as text; "-" if they cannot be told.
        why: reason why they cannot be told; empty if they can.
    """

    said: str = "-"
    why: str = ""


def share_tables(rows: Sequence[Standing]) -> tuple[tuple[Table, ...], str]:
    """Return a table of time and one of energy, and the sentences about cells that cannot be told."""
    own = [row for row in rows if _task(row) in STAGE_TASKS]
    rtts = sorted({row.contest.rtt_ns for row in own})
    subjects = [
        subject
        for subject in dict.fromkeys(row.who for row in own)
        if {_task(row) for row in own if row.who == subject} == set(STAGE_TASKS)
    ]
    times = {(subject, rtt_ns): _of_time(own, rtt_ns, subject) for subject in subjects for rtt_ns in rtts}
    joules = {
        (subject, rtt_ns): time if time.why else _of_energy(own, rtt_ns, subject)
        for (subject, rtt_ns), time in times.items()
    }
    tables = [_table("time", times, subjects, rtts)] if subjects else []
    if any(row.of(Quantity.ENERGY) is not None for row in own) and subjects:
        tables.append(_table("energy", joules, subjects, rtts))
    return tuple(tables), _reasons(times)


def _task(row: Standing) -> str:
    return row.contest.name.rpartition("-")[0]


def _table(
    what: str, cells: dict[tuple[Subject, int], _Cell], subjects: Sequence[Subject], rtts: Sequence[int]
) -> Table:
    return Table(
        title=f"Share of {what} in an epoch: {' / '.join(_SHARES)}",
        header=("system", "setting", *(format_duration(rtt_ns) for rtt_ns in rtts)),
        rows=tuple((*subject, *(cells[subject, rtt_ns].said for rtt_ns in rtts)) for subject in subjects),
        names=2,
    )


def _reasons(cells: dict[tuple[Subject, int], _Cell]) -> str:
    found = Counter(cell.why for cell in cells.values() if cell.why)
    parts = "; ".join(f"{why} ({count} of {len(cells)} cells)" for why, count in found.items())
    return f"A share is '-' where the epochs do not support it: {parts}." if parts else ""


def _of_time(rows: Sequence[Standing], rtt_ns: int, subject: Subject) -> _Cell:
    found = _three(rows, rtt_ns, subject)
    if found is None:
        return _Cell(why=_UNKNOWN)
    counts = [row.contest.corpus.records for row in found]
    if len(set(counts)) > 1:
        told = ", ".join(f"{task} {count:,}" for task, count in zip(STAGE_TASKS, counts, strict=True))
        return _Cell(
            why=f"the tasks have different numbers of records ({told}), and the cost of a record is not constant"
        )
    contest = found[-1].contest
    steps_s = -(-contest.corpus.records // contest.batch) * contest.step_ns / 1e9
    return _shares(found, lambda row: row.of(Quantity.FIRST_EPOCH), most_trained=steps_s)


def _of_energy(rows: Sequence[Standing], rtt_ns: int, subject: Subject) -> _Cell:
    found = _three(rows, rtt_ns, subject)
    return _Cell(why=_UNKNOWN) if found is None else _shares(found, lambda row: row.of(Quantity.ENERGY))


def _three(rows: Sequence[Standing], rtt_ns: int, subject: Subject) -> list[Standing] | None:
    found = [row for task in STAGE_TASKS if (row := row_of(rows, task, rtt_ns, subject)) is not None]
    return found if len(found) == len(STAGE_TASKS) else None


def _shares(found: Sequence[Standing], quantity: _Read, *, most_trained: float | None = None) -> _Cell:
    """Return the three shares.

    Training is what the step adds to an epoch that reads and decodes, preprocessing what decoding
    adds to one that only reads. Work that is hidden behind other work adds nothing.
    """
    values = [of.median for row in found if (of := quantity(row)) is not None and not of.bound]
    if len(values) < len(found) or not values[-1]:
        return _Cell(why=_UNKNOWN)
    read, decode, train = values
    if decode < read * (1 - _NOISE) or train < max(decode, read) * (1 - _NOISE):
        return _Cell(why="an epoch with more work was shorter than one with less")
    trained = max(train - max(decode, read), 0.0)
    if most_trained is not None and trained > most_trained * (1 + _NOISE):
        return _Cell(why="training added more than all of its steps take")
    prepared = min(max(decode - read, 0.0), train - trained)
    shares = (train - trained - prepared, prepared, trained)
    return _Cell(said=" / ".join(f"{number(100 * share / train)} %" for share in shares))
