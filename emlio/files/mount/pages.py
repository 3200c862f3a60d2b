"""The pages of all pieces of a tree: which were pushed, which may be there, and which are on their way. Pure."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from emlio.files.mount.pieces import PIECE_BYTES, page_bytes

__all__ = ["Pages"]

_Ints = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


class Pages:
    """The pages of pieces, which have numbers.

    Attributes:
        bytes: the bytes of the pages of each piece.
        there: whether they were pushed, or are on their way, and were not freed.
        touched: whether some may be there, since they were pushed or a reader of an order asked for them.
        coming: whether they are on their way.
        there_bytes: the bytes of those that are there.
    """

    __slots__ = ("_firsts", "bytes", "coming", "there", "there_bytes", "touched")

    def __init__(self, sizes: _Ints) -> None:
        """Begin with none.

        Args:
            sizes: of all entries of the tree.
        """
        counts = np.maximum(-(-sizes // PIECE_BYTES), 1)
        self._firsts: _Ints = np.concatenate(([0], np.cumsum(counts)))
        self.bytes = np.full(int(self._firsts[-1]), PIECE_BYTES, np.int32)
        self.bytes[self._firsts[1:] - 1] = page_bytes(sizes - (counts - 1) * PIECE_BYTES)
        self.there: _Flags = np.zeros(len(self.bytes), np.bool_)
        self.touched: _Flags = np.zeros(len(self.bytes), np.bool_)
        self.coming: _Flags = np.zeros(len(self.bytes), np.bool_)
        self.there_bytes = 0

    def number(self, entry: int, offset: int) -> int:
        """Return the number of the piece with this byte."""
        return int(self._firsts[entry]) + offset // PIECE_BYTES

    def numbers(self, entries: _Ints, offsets: _Ints) -> _Ints:
        """Return the numbers of the pieces with these bytes."""
        found: _Ints = self._firsts[entries] + offsets // PIECE_BYTES
        return found

    def located(self, numbers: Sequence[int]) -> _Ints:
        """Return the entries and offsets of pieces, shape (2, n)."""
        found = np.array(numbers, np.int64)
        entries = np.searchsorted(self._firsts, found, side="right") - 1
        return np.stack([entries, (found - self._firsts[entries]) * PIECE_BYTES])

    def size(self, numbers: _Ints) -> int:
        """Return the bytes of the pages of pieces."""
        return int(self.bytes[numbers].sum())

    def come(self, numbers: _Ints) -> None:
        """Count pieces as there, which were not."""
        self.there[numbers] = self.touched[numbers] = True
        self.there_bytes += self.size(numbers)

    def forget(self, numbers: _Ints) -> None:
        """Count pieces as not there."""
        gone = np.unique(numbers[self.there[numbers]])
        self.there[gone] = False
        self.there_bytes -= self.size(gone)
