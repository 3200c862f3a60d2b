"""Reading ranges of the files below a dataset's folder, as they were when the folder was walked."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.plain import checksums_of
from emlio.reading.gather import Gatherer, ShortReadError
from emlio.reading.ranges import RangeRead
from emlio.store.opened.open_files import OpenFiles
from emlio.store.tree_walk import WalkedFolder

__all__ = ["FoundRanges", "TreeReader"]

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoundRanges:
    """The first bytes of some ranges.

    Attributes:
        payload: the bytes, one range after the other.
        crcs: the CRC32C of those of each range, the last of which may have more.
    """

    payload: npt.NDArray[np.uint8]
    crcs: npt.NDArray[np.uint32]


class TreeReader:
    """Reads files of a walked folder. Thread-safe.

    A file is the one in the tree if it has its inode, size and time of change after it was read; a descriptor is kept for
    the next reads.

    Attributes:
        tree: the folder's entries.
    """

    def __init__(self, walked: WalkedFolder) -> None:
        self.tree = walked.tree
        self._files = OpenFiles(walked.store, read_whole=True)

    def read(self, files: _Ints, starts: _Ints, sizes: _Ints, most_bytes: int) -> FoundRanges:
        """Read ranges, which lie in files of the tree: as many bytes as fit.

        A range that cannot be read ends the answer before it; as the first one it is the error.

        Args:
            files: (n,) the number of each range's file.
            starts: (n,) where it begins.
            sizes: (n,) its length, not 0.
            most_bytes: the most bytes to read.

        Raises:
            DatasetError: the first range cannot be read, or its file is not the one in the tree.
        """
        ends = np.cumsum(sizes)
        count = min(int(np.searchsorted(ends, most_bytes)) + 1, len(ends))
        cut = sizes[:count].copy()
        cut[-1] = min(int(cut[-1]), most_bytes - int(ends[count - 2] if count > 1 else 0))
        try:
            payload = self._read(files[:count], starts[:count], cut)
        except DatasetError:
            if len(cut) == 1:
                raise
            payload, cut = self._read_good(files, starts, cut)
        return FoundRanges(payload=payload, crcs=checksums_of(payload.data, cut))

    def _read_good(self, files: _Ints, starts: _Ints, sizes: _Ints) -> tuple[npt.NDArray[np.uint8], _Ints]:
        """Return the ranges before the first one that cannot be read, and their sizes."""
        found: list[npt.NDArray[np.uint8]] = []
        for place in range(len(sizes)):
            one = slice(place, place + 1)
            try:
                found.append(self._read(files[one], starts[one], sizes[one]))
            except DatasetError:
                if not found:
                    raise
                break
        return np.concatenate(found), sizes[: len(found)]

    def _read(self, files: _Ints, starts: _Ints, sizes: _Ints) -> npt.NDArray[np.uint8]:
        out = np.empty(int(sizes.sum()), np.uint8)
        wanted = RangeRead(shard=files, record=files, file=files, starts=starts, sizes=sizes, size_bytes=out.nbytes)
        try:
            Gatherer().read(self._files, wanted, out)
        except ShortReadError as short:
            place = short.position
            self._files.confirm(files[place : place + 1])
            raise DatasetError(f"{self._files.store.path(int(files[place]))}: has become shorter") from short
        self._files.confirm(files)  # now: what was read before a change is found by that, too
        return out

    def close(self) -> None:
        """Close all files; what a thread is still using is closed when it is done."""
        self._files.close()
