"""The source of messages' bytes: a folder or a bucket.

Covers: the contract of both. Does not cover: folders (emlio.reading.files), buckets
(emlio.reading.bucket_source), which messages there are (emlio.reading.message_planner).
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from emlio.reading.gather import Gatherer
from emlio.reading.message_planner import MessagePlan
from emlio.reading.slices import Borrower
from emlio.shards.dataset import Dataset

__all__ = ["ReadAhead", "Source"]


class ReadAhead(Protocol):
    """The reads of one feed, some of them requested ahead.

    `close` may be called by any thread, the others by one at a time.
    """

    def wants(self, planned: Sequence[MessagePlan], gatherer: Gatherer) -> bool:
        """Return whether to plan and request one more message, given those not read yet."""
        ...

    def request(self, message: MessagePlan, gatherer: Gatherer) -> bool:
        """Request a message that is read later; return False if that has to wait."""
        ...

    def borrow(
        self, message: MessagePlan, gatherer: Gatherer, borrower: Borrower, now_ns: int
    ) -> npt.NDArray[np.uint8] | None:
        """Return the bytes of a message that is one run, without a copy, or None if they must be read.

        The borrower is told when nothing refers to them any more.

        Raises:
            DatasetError: the file is not the one that was indexed.
        """
        ...

    def read(self, message: MessagePlan, gatherer: Gatherer, out: npt.NDArray[np.uint8], now_ns: int) -> None:
        """Fill `out` with the message's records, requested before or not.

        Raises:
            DatasetError: they cannot be read, or a file is not the one that was indexed.
        """
        ...

    def confirm(self, message: MessagePlan) -> None:
        """Check once more, after reading, that files are those that were indexed.

        Raises:
            DatasetError: one is not.
        """
        ...

    def close(self) -> None:
        """Drop what was requested and not read. Closing again does nothing."""
        ...


class Source(Protocol):
    """A dataset's files for reading. Thread-safe.

    Attributes:
        dataset: the dataset.
        on_stuck: called with a path and the borrowers that keep another process from writing to it.
    """

    dataset: Dataset
    on_stuck: Callable[[Path, Collection[Borrower]], None]

    def read_ahead(self) -> ReadAhead:
        """Return the reads of a new feed."""
        ...

    def check_paths(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Raise `DatasetError` if a file is not the one that was indexed; of many, some are looked at.

        Args:
            stopped: called before each file; if it returns True, the rest is not checked.
        """
        ...

    def idle(self) -> bool:
        """Lend nothing more; return whether nothing that was lent is still in use."""
        ...

    def close(self) -> None:
        """Close everything; what a thread is still using is closed when it is done."""
        ...
