"""The needs of all jobs on a dataset, and which records are kept in memory for that. Pure."""

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.planner.future import NEVER, Future
from emlio.reading.sharing.kept_records import KeptRecords

__all__ = ["Foresight", "Needs"]

_Ints = npt.NDArray[np.int64]

_ELSEWHERE: Final = -(1 << 62)


class Needs(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The future of one job, on a dataset whose records have other numbers than in its plan.

    Attributes:
        future: tells of the plan's ids.
        bases: (shards + 1,) the number here of each shard's first record.
        shifts: (shards,) what is added to a number here for the id; None if ids are numbers here.
    """

    future: Future
    bases: _Ints
    shifts: _Ints | None

    @staticmethod
    def of(future: Future, bases: _Ints, local: _Ints, owned: npt.NDArray[np.bool_]) -> "Needs":
        """Return the needs of a job.

        Args:
            future: its future.
            bases: see the class.
            local: (catalog shards,) the number here of each of the plan's shards, or -1.
            owned: (catalog shards,) which of them are read here.
        """
        shifts = np.full(len(bases) - 1, _ELSEWHERE)
        here = np.flatnonzero(owned & (local >= 0))
        shifts[local[here]] = future.plan.catalog.bases[here] - bases[local[here]]
        return Needs(future=future, bases=bases, shifts=shifts if shifts.any() else None)

    def is_like(self, other: "Needs") -> bool:
        """Return whether both jobs have one plan, and read the same part of it here."""
        if self.future.plan.digest != other.future.plan.digest:
            return False
        if self.shifts is None or other.shifts is None:
            return self.shifts is other.shifts
        return np.array_equal(self.shifts, other.shifts)

    def id_of(self, number: int) -> int:
        """Return the plan's id of a record that is read here."""
        if self.shifts is None:
            return number
        return number + int(self.shifts[np.searchsorted(self.bases, number, side="right") - 1])

    def seconds_until(self, numbers: _Ints, now_ns: int) -> npt.NDArray[np.float64]:
        """Return the time until each record is needed next here, `NEVER` if it is not."""
        if self.shifts is None:
            return self.future.seconds_until(numbers, now_ns)
        ids = numbers + self.shifts[np.searchsorted(self.bases, numbers, side="right") - 1]
        here = ids >= 0
        result = np.full(numbers.shape, NEVER)
        result[here] = self.future.seconds_until(ids[here], now_ns)
        return result


class Foresight:
    """The needs of all jobs on a dataset, and the records that are kept by them. Used under its owner's lock.

    Attributes:
        kept: the records that are kept.
        jobs: the needs of each.
    """

    def __init__(self, records: int, pages: int, jobs: list[Needs]) -> None:
        """See the class and `KeptRecords`. The list of jobs is shared with the caller, who changes it."""
        self.kept = KeptRecords(records, pages)
        self.jobs = jobs

    def due(self, numbers: _Ints, now_ns: int) -> npt.NDArray[np.float64]:
        """Return the time in seconds at which each record is needed next."""
        due = np.full(numbers.shape, NEVER)
        for job in self.jobs:
            np.minimum(due, job.seconds_until(numbers, now_ns), out=due)
        return due + now_ns / 1e9

    def order(self, counts: _Ints, now_ns: int, *, anew: bool) -> None:
        """Put those that are needed last in order, if that is due.

        Args:
            counts: the pages of the records that are admitted next.
            now_ns: the time.
            anew: whether to ask all jobs again: their paces change, they end and they jump.
        """
        if not self.kept.must_order(counts):
            return
        if anew:
            entries, numbers = self.kept.kept
            self.kept.retime(entries, self.due(numbers, now_ns))
        self.kept.order()
