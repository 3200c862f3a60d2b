"""The seam between what is read and how: an engine fills buffers with ranges of a dataset's files.

An engine is given many reads, each of many ranges, before the first is wanted. It may carry them out
in any order, and each is completed when its buffer is filled.
"""

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt

from emlio.clock import Clock
from emlio.index.dataset import Dataset
from emlio.reading.gather import Gatherer
from emlio.reading.message_planner import StreamFuture
from emlio.reading.ranges import RangeRead
from emlio.store.opened.open_files import Stuck
from emlio.store.opened.slices import Borrower

__all__ = ["ReadEngine", "Reads"]


class Reads(ABC):
    """The reads of one feed. `close` may be called by any thread, the others by one at a time."""

    def foresee(self, stream: StreamFuture, clock: Clock) -> None:  # noqa: B027  # only what is shared is chosen by it
        """Note what the feed reads from now on; called once, before the others, if it follows a plan."""

    @abstractmethod
    def wants(self, planned: Sequence[RangeRead], gatherer: Gatherer) -> bool:
        """Return whether one more read may be submitted now, given those not completed yet."""

    def keeps(self, read: RangeRead) -> bool:
        """Return whether the read is part of a window that is read once and kept; if so, that was begun."""
        return False

    @abstractmethod
    def submit(self, read: RangeRead, gatherer: Gatherer) -> bool:
        """Begin a read that is completed later; return False if that has to wait."""

    def borrow(
        self, read: RangeRead, gatherer: Gatherer, borrower: Borrower, now_ns: int
    ) -> npt.NDArray[np.uint8] | None:
        """Return the bytes of a read that is one run, without a copy, or None if it must be completed, as by default.

        The borrower is told when nothing refers to them any more.

        Raises:
            DatasetError: the file is not the one that was indexed.
        """
        return None

    @abstractmethod
    def complete(self, read: RangeRead, gatherer: Gatherer, out: npt.NDArray[np.uint8], now_ns: int) -> None:
        """Fill `out` with the ranges of a read one after the other, whether it was submitted or not.

        Raises:
            DatasetError: they cannot be read, or a file is not the one that was indexed.
        """

    @abstractmethod
    def close(self) -> None:
        """Drop what was submitted and not completed. Closing again does nothing."""


class ReadEngine(ABC):
    """Reads a dataset's files. Thread-safe.

    Attributes:
        dataset: the dataset.
        keeps_windows: whether it can read a window of a block order once, and keep it.
        disk_bytes: read from the disk so far, if this is counted.
        shared_bytes: taken from memory instead, where another job's reads had brought them.
    """

    keeps_windows = False

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    @property
    def disk_bytes(self) -> int:
        """See the class."""
        return 0

    @property
    def shared_bytes(self) -> int:
        """See the class."""
        return 0

    def when_stuck(self, stuck: Stuck) -> None:  # noqa: B027  # most engines lend nothing
        """Tell this function of those who must give back what was lent; see `Stuck`."""

    @abstractmethod
    def reads(self) -> Reads:
        """Return the reads of a new feed."""

    @abstractmethod
    def opened(self, number: int) -> "AbstractContextManager[io.RawIOBase]":
        """Open a file for a while, to read what an index of ranges does not say.

        Raises:
            DatasetError: it is not the one that was indexed, or was not when it was read.
        """

    def check(self, files: npt.NDArray[np.int64], now_ns: int) -> None:  # noqa: B027  # see below
        """Raise `DatasetError` if one of these files is not the one that was indexed, looked at a short time ago.

        What comes from a server is compared whenever it is read.
        """

    def confirm(self, files: npt.NDArray[np.int64]) -> None:  # noqa: B027  # likewise
        """Check like `check`, just now."""

    @abstractmethod
    def check_paths(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Raise `DatasetError` if a file is not the one that was indexed; of many, some are looked at.

        Args:
            stopped: called before each file; if it returns True, the rest is not checked.
        """

    def idle(self) -> bool:
        """Lend nothing more; return whether nothing that was lent is still in use."""
        return True

    @abstractmethod
    def close(self) -> None:
        """Close everything; what a thread is still using is closed when it is done."""
