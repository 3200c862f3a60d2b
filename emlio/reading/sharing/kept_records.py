"""The records that are kept in memory, if it is known when each is needed next: those that are needed first.

Pure: numbers of records, of pages, and times. The memory is cut into equal pages; a record has as
many as it needs, wherever they lie, so that nothing has to be moved to make room.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["MOST_PAGES", "KeptRecords"]

MOST_PAGES: Final = 256
"""Pages of a record that is kept. Looking up takes a step for each page of the longest record."""

_LEAST_ORDERED: Final = 64
_PART_ORDERED: Final = 16
"""One record in so many is put in order at a time, to be dropped next. Those that came since are in the next order."""

_Ints = npt.NDArray[np.int64]
_Times = npt.NDArray[np.float64]


class KeptRecords:
    """The records that are kept, each with its pages and the time of its next use. Used under its owner's lock.

    A record that is kept has an entry, by which all is asked.

    Attributes:
        pages: the number of all pages.
        free: the number of those that hold nothing.
    """

    def __init__(self, records: int, pages: int) -> None:
        """See the class.

        Args:
            records: their number; they are numbered from 0 on.
            pages: the most that are used.
        """
        self.pages = self.free = pages
        self._entry = np.full(records, -1, np.int32)
        self._number = np.full(pages, -1, np.int64)  # by entry; -1 for one that is not in use
        self._due = np.zeros(pages)
        self._count = np.zeros(pages, np.int32)
        self._first = np.zeros(pages, np.int32)
        self._held = np.zeros(pages, np.int32)
        self._next = np.zeros(pages, np.int32)  # by page
        self._free_pages = np.arange(pages, dtype=np.int32)[::-1].copy()
        self._free_entries = self._free_pages.copy()
        self._in_use = 0
        self._ordered = np.zeros(0, np.int64)  # entries, the farthest first
        self._ordered_due = np.zeros(0)

    def __len__(self) -> int:
        return self._in_use

    def find(self, numbers: _Ints) -> _Ints:
        """Return the entry of each record, -1 for one that is not kept."""
        return self._entry[numbers].astype(np.int64)

    @property
    def kept(self) -> tuple[_Ints, _Ints]:
        """The entries in use, and their records."""
        entries = np.flatnonzero(self._number >= 0)
        return entries, self.numbers(entries)

    def numbers(self, entries: _Ints) -> _Ints:
        """Return the record of each."""
        return self._number[entries]

    def due(self, entries: _Ints) -> _Times:
        """Return the time of the next use of each."""
        return self._due[entries]

    def retime(self, entries: _Ints, due: _Times) -> None:
        """Note when each is needed next."""
        self._due[entries] = due

    def hold(self, entries: _Ints) -> None:
        """Do not drop these until `let_go`."""
        np.add.at(self._held, entries, 1)

    def let_go(self, entries: _Ints) -> None:
        """Undo `hold`."""
        np.subtract.at(self._held, entries, 1)

    def pages_of(self, entries: _Ints) -> tuple[_Ints, _Ints]:
        """Return the number of pages of each entry, and all these pages one after the other."""
        counts = self._count[entries].astype(np.int64)
        begins = np.cumsum(counts) - counts
        found = np.empty(int(counts.sum()), np.int64)
        at = self._first[entries]
        left = np.arange(len(entries))
        for step in range(int(counts.max(initial=0))):
            more = counts[left] > step
            left, at = left[more], at[more]
            found[begins[left] + step] = at
            at = self._next[at]
        return counts, found

    def must_order(self, counts: _Ints) -> bool:
        """Return whether `order` is due before records of so many pages are admitted: too little is left of the last one."""
        valid = (
            (self._number[self._ordered] >= 0)
            & (self._due[self._ordered] == self._ordered_due)
            & (self._held[self._ordered] == 0)
        )
        self._ordered, self._ordered_due = self._ordered[valid], self._ordered_due[valid]
        return self.free + int(self._count[self._ordered].sum()) < int(counts.sum()) and self._in_use > 0

    def order(self) -> None:
        """Put those that are needed last in order, by their times now."""
        entries = np.flatnonzero((self._number >= 0) & (self._held == 0))
        due = self._due[entries]
        most = max(len(entries) // _PART_ORDERED, _LEAST_ORDERED)
        if most < len(entries):
            some = np.argpartition(due, len(entries) - most)[len(entries) - most :]
            entries, due = entries[some], due[some]
        farthest_first = np.argsort(-due, kind="stable")
        self._ordered, self._ordered_due = entries[farthest_first], due[farthest_first]

    def admit(self, numbers: _Ints, counts: _Ints, due: _Times) -> _Ints:
        """Keep records, and drop those that are needed later than these; return the entries, -1 for one that is not kept.

        Args:
            numbers: (n,) records that are not kept, each once.
            counts: (n,) the pages that each needs.
            due: (n,) when each is needed next; infinite for one that is not.

        `must_order` was called before.
        """
        result = np.full(len(numbers), -1, np.int64)
        wanted = np.flatnonzero(np.isfinite(due) & (counts <= MOST_PAGES))
        wanted = wanted[np.argsort(due[wanted], kind="stable")]
        ordered, ordered_due = self._ordered, self._ordered_due
        # The first of those that are needed soonest are kept, as many as there is room for in place of farther ones.
        freed = np.zeros(len(ordered) + 1, np.int64)
        np.cumsum(self._count[ordered], out=freed[1:])
        farther = np.searchsorted(-ordered_due, -due[wanted], side="left")
        needed = np.cumsum(counts[wanted]) - self.free
        fits = needed <= freed[farther]
        kept = wanted[: int(fits.argmin()) if not fits.all() else len(fits)]
        if kept.size:
            missing = int(needed[kept.size - 1])
            dropped = int(np.searchsorted(freed, missing))
            self._drop(ordered[:dropped])
            ordered, ordered_due = ordered[dropped:], ordered_due[dropped:]
            result[kept] = self._put(numbers[kept], counts[kept], due[kept])
        self._ordered, self._ordered_due = ordered, ordered_due
        return result

    def _put(self, numbers: _Ints, counts: _Ints, due: _Times) -> _Ints:
        entries = self._free_entries[self._in_use : self._in_use + len(numbers)].astype(np.int64)
        self._in_use += len(numbers)
        taken = int(counts.sum())
        begin = self.pages - self.free
        pages = self._free_pages[begin : begin + taken]
        self._next[pages[:-1]] = pages[1:]
        self.free -= taken
        self._number[entries], self._due[entries], self._count[entries] = numbers, due, counts
        self._first[entries] = pages[np.cumsum(counts) - counts]
        self._entry[numbers] = entries
        return entries

    def _drop(self, entries: _Ints) -> None:
        _, pages = self.pages_of(entries)
        self.free += len(pages)
        begin = self.pages - self.free
        self._free_pages[begin : begin + len(pages)] = pages
        self._in_use -= len(entries)
        self._free_entries[self._in_use : self._in_use + len(entries)] = entries
        self._entry[self._number[entries]] = -1
        self._number[entries] = -1
