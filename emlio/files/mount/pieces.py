"""The pieces of files in the order in which they will be read. Pure."""

from typing import Final, Self

import numpy as np
import numpy.typing as npt

__all__ = ["PAGE_BYTES", "PIECE_BYTES", "Pieces", "page_bytes"]

_Ints = npt.NDArray[np.int64]

PIECE_BYTES: Final = 1 << 20
"""A larger file is pushed, and freed, in pieces of this size."""

PAGE_BYTES: Final = 4096


def page_bytes(sizes: _Ints) -> _Ints:
    """Return the bytes of the whole pages that hold so many."""
    return -(-sizes // PAGE_BYTES) * PAGE_BYTES


class Pieces:
    """An order of files, cut into pieces: position by position, from 0 on. A file may occur more than once.

    Attributes:
        entries: (n,) the file of each piece.
        offsets: (n,) its first byte there.
        sizes: (n,) its bytes; empty files have one piece without any.
        ends: (n + 1,) the bytes of whole pages before each piece, and of all.
    """

    __slots__ = ("_by_file", "_files", "_keys", "_starts", "ends", "entries", "offsets", "sizes")

    def __init__(self, order: _Ints, sizes: _Ints) -> None:
        """See the class.

        Args:
            order: (m,) the files, as they will be read.
            sizes: (m,) their bytes.
        """
        counts = np.maximum(-(-sizes // PIECE_BYTES), 1)
        self._starts = np.concatenate(([0], np.cumsum(counts)))
        self.entries = np.repeat(order, counts)
        self.offsets = (np.arange(len(self.entries)) - np.repeat(self._starts[:-1], counts)) * PIECE_BYTES
        self.sizes = np.minimum(np.repeat(sizes, counts) - self.offsets, PIECE_BYTES)
        self.ends = np.concatenate(([0], np.cumsum(page_bytes(self.sizes))))
        self._by_file = np.argsort(order, kind="stable")
        self._files = order[self._by_file]
        self._keys = self._files * (len(self) + 1) + self._starts[self._by_file]  # each file with its positions, sorted

    @classmethod
    def of_files(cls, order: _Ints, all_sizes: _Ints) -> Self:
        """Return the pieces of entries of a tree with these sizes."""
        return cls(order, all_sizes[order])

    def __len__(self) -> int:
        return len(self.entries)

    def positions(self, entry: int, offset: int) -> _Ints:
        """Return the positions of the piece that has this byte, in their order."""
        first, last = np.searchsorted(self._files, [entry, entry + 1])
        return self._starts[self._by_file[first:last]] + offset // PIECE_BYTES

    def are_between(self, entries: _Ints, offsets: _Ints, begin: int, end: int) -> npt.NDArray[np.bool_]:
        """Return which of these pieces have a position in a range."""
        if not len(self) or not len(entries) or begin >= end:
            return np.zeros(len(entries), np.bool_)
        behind = offsets // PIECE_BYTES
        least = np.clip(begin - behind, 0, len(self))
        at = np.minimum(np.searchsorted(self._keys, entries * (len(self) + 1) + least), len(self._keys) - 1)
        file, start = np.divmod(self._keys[at], len(self) + 1)
        found: npt.NDArray[np.bool_] = (file == entries) & (start >= least) & (start < end - behind)
        return found
