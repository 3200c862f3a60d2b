"""The counts of what a loader handed out, and of the time waited for it.

Covers: the counts of the user's side. Does not cover: counting
(emlio.receiver.iteration.epoch_pass), the other threads' counts, the verdict
(emlio.receiver.stats).
"""

import time
from typing import Any

__all__ = ["Tally"]


class Tally:
    """Totals since the loader was made. Written by the user's thread.

    Attributes:
        batches, records: batches and records handed out.
        bad: bad records of those batches.
        size_bytes: bytes of their records, as they came.
        wait_ns: time the user waited for batches.
        busy_ns: time the user was busy between batches.
        first_wait_ns: the part of `wait_ns` before the first batch.
        first_batch_ns: from the loader's creation to the first batch, or None before it.
        born_ns: when the loader was made.
        by_dataset: records by the datasets of a mixture, as the plan has them; else 0.
        ongoing: since when the user waits for a batch (True) or is busy (False); None outside of a pass.
        ended_ns: when the last pass ended, while there is no other; 0 before.
        skips: whether bad records are left out, rather than replaced.
    """

    def __init__(self, *, skips: bool) -> None:
        """Begin to count now."""
        self.batches = self.records = self.bad = self.size_bytes = self.wait_ns = self.busy_ns = 0
        self.first_wait_ns = 0
        self.by_dataset: Any = 0
        self.first_batch_ns: int | None = None
        self.ongoing: tuple[int, bool] | None = None
        self.ended_ns = 0
        self.born_ns = time.monotonic_ns()
        self.skips = skips
