"""The source of a mount's bytes."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from typing_extensions import Buffer

__all__ = ["Range", "Source"]


class Range(NamedTuple):
    """Bytes of a file.

    Attributes:
        entry: the number of the file in the tree.
        offset: the first byte.
        size: how many, all inside the file, at least one.
    """

    entry: int
    offset: int
    size: int


class Source(Protocol):
    """Bytes of files, asked for many at once. Threads ask beside each other."""

    def read_each(self, ranges: Sequence[Range], /) -> Iterable[Buffer | OSError]:
        """Return, in order, the bytes of each range, or why it cannot be read.

        An exception fails all that were not returned before it; the reader gets EIO. Waits no longer than the
        recovery of a lost daemon may take.
        """
        ...
