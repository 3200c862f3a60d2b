"""What a loader handed out, and how long that was waited for.

Covers: the counts of the user's side. Does not cover: counting (emlio.receiver.iteration), the other threads' counts, the verdict
(emlio.receiver.stats).
"""

import time

__all__ = ["Tally"]


class Tally:
    """Totals since the loader was made. Written by the user's thread.

    Attributes:
        batches, records: handed out.
        bad: records of those batches that were not what they must be.
        wait_ns: batches were waited for.
        busy_ns: the user was away between batches.
        first_batch_ns: from the loader's birth to the first batch, or None before it.
        born_ns: the loader's birth.
        skips: whether bad records were left out, and not replaced.
    """

    def __init__(self, *, skips: bool) -> None:
        """See the class."""
        self.batches = self.records = self.bad = self.wait_ns = self.busy_ns = 0
        self.first_batch_ns: int | None = None
        self.born_ns = time.monotonic_ns()
        self.skips = skips
