"""Readers that read a tree from file to file, as they are seen by their reads. Pure."""

from collections import OrderedDict
from typing import Final

__all__ = ["SequenceDetector"]

_MOST_THREADS: Final = 256


class SequenceDetector:
    """Finds threads that read files, or one large file, from begin to end, in the order of the tree."""

    def __init__(self, length: int = 8) -> None:
        """See the class.

        Args:
            length: how many reads must follow each other.
        """
        if length < 2:
            raise ValueError(f"a sequence must have at least 2 reads, got {length}")
        self._length = length
        self._runs: OrderedDict[int, tuple[int, int, int]] = OrderedDict()

    def read(self, thread: int, file: int, offset: int, size: int) -> bool:
        """Take note of a read that missed; return whether its thread has read a sequence up to there.

        Args:
            thread: of the reader.
            file: its number among the files that have bytes, in the order of the tree.
            offset: the first byte.
            size: how many.
        """
        expected, end, length = self._runs.pop(thread, (-2, 0, 0))
        follows = (file == expected and offset == end) or (file == expected + 1 and offset == 0)
        length = length + 1 if follows else 1
        found = length >= self._length
        self._runs[thread] = (file, offset + size, 0 if found else length)
        if len(self._runs) > _MOST_THREADS:
            self._runs.popitem(last=False)
        return found
