"""One pass over an epoch, or over its rest.

Covers: handing out batches, noting which, the time between them, notes for energy, the bar. Does not cover: where batches come
from (emlio.receiver.loader).
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from emlio.progress import Progress
from emlio.receiver.energy_notes import EpochNotes
from emlio.receiver.prefetch import MadeBatch

__all__ = ["Handed", "Iteration"]


class Handed:
    """Which batches one pass handed out; by being itself it also tells one pass from another."""

    def __init__(self) -> None:
        self._steps: set[int] = set()

    def add(self, step: int) -> None:
        """This batch was."""
        self._steps.add(step)

    @property
    def is_prefix(self) -> bool:
        """Whether the batches handed out are the first ones of the epoch, without a gap."""
        return not self._steps or max(self._steps) == len(self._steps) - 1


class Iteration(Iterator[Any]):
    """What `iter(loader)` returns. It keeps the loader alive and not the other way round: dropping both frees both at once.

    Attributes:
        handed: the batches it handed out.
    """

    def __init__(
        self,
        take: Callable[[Handed], MadeBatch],
        count_time: Callable[[int, int], None],
        bar: Progress | None,
        notes: EpochNotes | None = None,
    ) -> None:
        """See the class.

        Args:
            take: gives the next batch of the pass that has handed out these, and StopIteration after the last.
            count_time: told after each batch for how long it was waited for, and how long the user was away before, in ns.
            bar: shows how far it is.
            notes: told when a batch is asked for and when it is handed out; None where nobody wants to know.
        """
        self.handed = Handed()
        self._take = take
        self._count_time = count_time
        self._bar = bar
        self._notes = notes
        self._left_ns: int | None = None
        self._ended = False

    def __next__(self) -> Any:
        came_ns = time.monotonic_ns()
        if self._ended:
            raise StopIteration
        notes = self._notes
        if notes is not None:
            notes.asked(came_ns)
        try:
            made = self._take(self.handed)
        except BaseException as error:
            if notes is not None:
                notes.failed()
            self._ended = isinstance(error, StopIteration)
            if self._bar is not None:
                self._bar.close()
            raise
        now_ns = time.monotonic_ns()
        self._count_time(now_ns - came_ns, came_ns - self._left_ns if self._left_ns is not None else 0)
        self.handed.add(made.step)
        if self._bar is not None:
            self._bar.add(1)
        if notes is not None:
            notes.handed(came_ns, now_ns)
        self._left_ns = now_ns
        return made.value

    def __del__(self) -> None:
        if self._notes is not None:
            self._notes.left()
