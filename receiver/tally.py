"""What a loader handed out, and how long that was waited for.

Covers: the counts of the user's side. Does not cover: those of the other threads, the verdict (emlio.receiver.stats).
"""

import time

from emlio.receiver.prefetch import MadeBatch

__all__ = ["Tally"]


class Tally:
    """Totals since the loader was made. Used by the user's thread.

    Attributes:
        batches, records: handed out.
        bad: records of those batches that were not what they must be.
        wait_ns: batches were waited for.
        busy_ns: the user was away between batches.
        first_batch_ns: from the loader's birth to the first batch, or None before it.
    """

    def __init__(self, *, skips: bool) -> None:
        """See the class; with `skips`, bad records were left out and not replaced."""
        self.batches = self.records = self.bad = self.wait_ns = self.busy_ns = 0
        self.first_batch_ns: int | None = None
        self._skips = skips
        self._born_ns = time.monotonic_ns()

    def add(self, made: MadeBatch) -> None:
        """A batch is handed out."""
        self.batches += 1
        self.bad += made.bad
        self.records += made.count - (made.bad if self._skips else 0)
        if self.first_batch_ns is None:
            self.first_batch_ns = time.monotonic_ns() - self._born_ns

    def add_time(self, wait_ns: int, busy_ns: int) -> None:
        """It was waited for that long, and the user was away that long before."""
        self.wait_ns += wait_ns
        self.busy_ns += busy_ns
