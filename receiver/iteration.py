"""One pass over an epoch, or over its rest.

Covers: handing out batches, noting which, the time between them, notes for energy, the bar. Does not cover: where batches come
from (emlio.receiver.loader).

A signal's handler may raise in the user's thread, at any moment. Either `next` returns and the batch is counted, or it raises and
the batch is not: then the next call hands it out.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from emlio.progress import Progress
from emlio.receiver.energy_notes import EpochNotes
from emlio.receiver.prefetch import MadeBatch
from emlio.receiver.tally import Tally

__all__ = ["Counted", "Handed", "Iteration"]


class Counted(Protocol):
    """A position that counts batches handed out; see `emlio.receiver.position.Position`."""

    steps_done: int


class Handed:
    """What one pass handed out; by being itself it also tells one pass from another.

    Attributes:
        ready: the batch that is handed out next, if it is known; it is counted when it is.
        ended: whether the pass came to the end of its epoch.
        count: how many batches were handed out.
        furthest: the highest number among them.
    """

    def __init__(self) -> None:
        self.ready: MadeBatch | None = None
        self.ended = False
        self.count = 0
        self.furthest = -1

    @property
    def is_prefix(self) -> bool:
        """Whether the batches handed out are the first ones of the epoch, without a gap."""
        return self.furthest == self.count - 1


class Iteration(Iterator[Any]):
    """What `iter(loader)` returns. It keeps the loader alive and not the other way round: dropping both frees both at once.

    Attributes:
        handed: the batches it handed out.
    """

    _notes: EpochNotes | None = None  # for one that was interrupted while it was made

    def __init__(
        self,
        take: Callable[[Handed], MadeBatch],
        position: Counted,
        tally: Tally,
        bar: Progress | None,
        notes: EpochNotes | None = None,
    ) -> None:
        """See the class.

        Args:
            take: gives the next batch of the pass that has handed out these, the same one until it is counted; StopIteration
                after the last.
            position: counts them.
            tally: counts them, too, and the time.
            bar: shows how far it is.
            notes: told when a batch is asked for and when it is handed out; None where nobody wants to know.
        """
        self.handed = Handed()
        self._take = take
        self._position = position
        self._tally = tally
        self._bar = bar
        self._notes = notes
        self._left_ns: int | None = None

    def __next__(self) -> Any:
        came_ns = time.monotonic_ns()
        handed, tally, notes = self.handed, self._tally, self._notes
        if handed.ended:
            raise StopIteration
        try:
            if notes is not None:
                notes.asked(came_ns)
            made = self._take(handed)
            if self._bar is not None:
                self._bar.add(1)
            now_ns = time.monotonic_ns()
            if notes is not None:
                notes.handed(came_ns, now_ns)
        except BaseException:
            if notes is not None:
                notes.failed()
            if self._bar is not None:
                self._bar.close()
            raise
        # Python handles signals where a call begins or ends and where a loop goes round. From here to the return there is
        # neither, so that what is handed out is counted and what is counted is handed out.
        self._position.steps_done += 1
        handed.count += 1
        if made.step > handed.furthest:
            handed.furthest = made.step
        tally.batches += 1
        tally.bad += made.bad
        tally.records += made.count - made.bad if tally.skips else made.count
        tally.wait_ns += now_ns - came_ns
        if self._left_ns is not None:
            tally.busy_ns += came_ns - self._left_ns
        if tally.first_batch_ns is None:
            tally.first_batch_ns = now_ns - tally.born_ns
        self._left_ns = now_ns
        handed.ready = None
        return made.value

    def __del__(self) -> None:
        if self._notes is not None:
            self._notes.left()
