"""Readers that read files here and there, in no order that can be seen, as they are seen by their reads. Pure."""

from collections import deque
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.files.mount.pieces import page_bytes
from emlio.store.tree import Tree

__all__ = ["ScatterDetector"]

_Ints = npt.NDArray[np.int64]

_READS: Final = 8
"""So many unforeseen reads, each of another file, must agree where they are."""


class ScatterDetector:
    """Finds the smallest folder in which files are read here and there, if all that is below it may be pushed."""

    def __init__(self, tree: Tree) -> None:
        """See the class."""
        self._tree = tree
        self._files = tree.are_files(np.arange(len(tree))) & (tree.sizes > 0)
        self._ends = np.concatenate(([0], np.cumsum(np.where(self._files, page_bytes(tree.sizes), 0))))
        self._last: deque[int] = deque(maxlen=_READS)

    def forget(self) -> None:
        """Forget the reads: they were foreseen after all."""
        self._last.clear()

    def read(self, file: int, room_bytes: int) -> _Ints | None:
        """Take note of a read that was not foreseen; return the files of a folder whose pages have room, if it is found."""
        if file in self._last:
            return None
        self._last.append(file)
        if len(self._last) < _READS:
            return None
        below = self._tree.below(self._common())
        if sum(int(self._ends[part.stop] - self._ends[part.start]) for part in below) > room_bytes:
            return None
        self._last.clear()
        entries = np.concatenate([np.arange(part.start, part.stop) for part in below])
        found: _Ints = entries[self._files[entries]]
        return found

    def _common(self) -> int:
        """Return the folder in which all of the last reads are."""
        here = {self._tree.parent(file) for file in self._last}
        while len(here) > 1:  # folders come behind those that they are in
            last = max(here)
            here.remove(last)
            here.add(self._tree.parent(last))
        return here.pop()
