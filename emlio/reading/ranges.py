"""Ranges of files that are read together."""

from collections.abc import Callable, Collection

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["RangeRead", "Window", "WindowRecords", "run_starts"]


class WindowRecords(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Records of a window; shapes (n,) for n records.

    Attributes:
        ids: their ids in the plan.
        file: which of the dataset's files holds each record.
        starts: the byte of that file at which it begins.
        sizes: its bytes.
    """

    ids: npt.NDArray[np.int64]
    file: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


class Window(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Records that lie in the same blocks, and that the ranks of a job take at about the same time.

    Reading their blocks once, and keeping them meanwhile, takes fewer and longer reads.

    Attributes:
        number: the epoch, and the first place in it: the later, the larger.
        own: the records of this stream, in its order.
        of: returns the records that these ranks take of the window, in any order.
    """

    number: tuple[int, int]
    own: WindowRecords
    of: Callable[[Collection[int]], WindowRecords]


class RangeRead(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Records, and where each of them lies; shapes (n,) for n records.

    Attributes:
        shard: which of the dataset's shards each record lies in.
        record: its number in that shard.
        file: which of the dataset's files holds it.
        starts: the byte of that file at which each begins, with its frame if it has one.
        sizes: the bytes of each.
        size_bytes: the bytes of all of them.
        window: the window that they are a part of, if the order has windows and the engine keeps them.
        window_place: the number of the first of them in it; the others follow.
    """

    shard: npt.NDArray[np.int64]
    record: npt.NDArray[np.int64]
    file: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    size_bytes: int
    window: Window | None = None
    window_place: int = 0

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.sizes)


def run_starts(
    file: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the positions of the ranges that do not continue the range before."""
    breaks = np.empty(len(starts), np.bool_)
    breaks[0] = True
    np.not_equal(starts[1:], starts[:-1] + sizes[:-1], out=breaks[1:])
    breaks[1:] |= file[1:] != file[:-1]
    return breaks.nonzero()[0]
