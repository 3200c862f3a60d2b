"""Turns by job: each job gets the same share of a thread's work, however many streams it has.

Covers: who comes next, from what each job was given. Pure, used under its owner's lock. Does not
cover: the work (emlio.daemon.reading.readers, emlio.daemon.lanes.sender).
"""

from collections import deque
from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeVar

__all__ = ["JobTurns"]

_T = TypeVar("_T")

_KEPT = 64
"""Jobs that are remembered without need."""


class JobTurns(Generic[_T]):
    """Items that wait. The job that was given least comes first; within a job, the item that has waited longest."""

    def __init__(self, least: int = 1) -> None:
        """Begin with nothing; each turn counts as `least` if nothing could be given: it takes time, too."""
        self._turn = least
        self._waiting: dict[str, deque[_T]] = {}
        self._given: dict[str, int] = {}  # time or bytes
        self._order: list[tuple[int, str]] = []  # a heap: the waiting jobs, by what they were given, or less
        self._least = 0  # what the job that came last had been given
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, job: str, item: _T) -> None:
        """Let an item of this job wait."""
        waiting = self._waiting.get(job)
        if waiting is None:
            if not self._waiting:
                self._given.clear()  # there was enough for all: no job is owed anything
                self._least = 0
            # What a job did not ask for is not made up for.
            self._given[job] = max(self._given.get(job, 0), self._least)
            waiting = self._waiting[job] = deque()
            heappush(self._order, (self._given[job], job))
        waiting.append(item)
        self._count += 1

    def take(self) -> _T:
        """Return the next item; there must be one."""
        given, order = self._given, self._order
        while order[0][0] < given[order[0][1]]:
            heapreplace(order, (given[order[0][1]], order[0][1]))
        self._least, job = order[0]
        waiting = self._waiting[job]
        item = waiting.popleft()
        self._count -= 1
        if not waiting:
            del self._waiting[job]
            heappop(order)
            if len(given) > len(self._waiting) + _KEPT:
                self._given = {name: so_far for name, so_far in given.items() if so_far > self._least}
                self._given.update((name, given[name]) for name in self._waiting)
        return item

    def gave(self, job: str, given: int) -> None:
        """Note what a job was given in its turn."""
        self._given[job] = self._given.get(job, self._least) + max(given, self._turn)
