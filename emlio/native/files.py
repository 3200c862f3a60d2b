"""Opening many files of a folder, reading them, and looking at them by name, in one call each.

The C library does it without the interpreter's lock. Only files that are exactly those that were indexed, and have all bytes;
the caller copes with the others one by one.
"""

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from emlio.native.library import guard_library

__all__ = ["IndexedFiles", "close_files", "read_files"]

_Ints = npt.NDArray[np.int64]


class IndexedFiles:
    """The names and identities of files, by number, where C finds them. Threads may share it."""

    __slots__ = ("_arrays", "_table")

    def __init__(self, text: npt.NDArray[np.uint8], bounds: _Ints, *identities: _Ints) -> None:
        """See the class.

        Args:
            text: the names one after the other.
            bounds: (n + 1,) where each begins, and the end of the last one.
            identities: the (n,) sizes, times of change of content and of anything, inodes. What is written to them
                later counts, if they are contiguous.
        """
        names = np.ascontiguousarray(text, np.uint8)
        columns = [np.ascontiguousarray(column, np.int64) for column in (bounds, *identities)]
        count = len(bounds) - 1
        if len(identities) != 4 or not all(column.shape == (count,) for column in columns[1:]):
            raise ValueError(f"there must be 4 identities of each of {count} files")
        self._arrays = (names, *columns)  # not copied
        self._table = np.array(
            [names.ctypes.data, len(names), count, *(column.ctypes.data for column in columns)], np.int64
        )

    def open(self, folder: int, flags: int, numbers: _Ints, opened: _Ints, *, beneath: bool, direct: bool) -> None:
        """Open files.

        Args:
            folder: the descriptor of the folder.
            flags: of open(2); descriptors are not inherited.
            numbers: (k,) of the files.
            opened: (k,) gets the descriptor of each; a negative number if it was not opened. Left as it is without the
                library.
            beneath: whether links must stay below the folder.
            direct: whether each is then to be read past the page cache.
        """
        library = guard_library()
        if library is None or not len(numbers):
            return
        if opened.shape != numbers.shape or not opened.flags.c_contiguous or opened.dtype != np.int64:
            raise ValueError("opened must be contiguous and have a place for each number")
        wanted = np.ascontiguousarray(numbers, np.int64)
        library.emlio_open_files(
            self._table.ctypes.data,
            folder,
            flags,
            beneath,
            direct,
            wanted.ctypes.data,
            len(wanted),
            opened.ctypes.data,
        )

    def read(
        self,
        folder: int,
        flags: int,
        ranges: tuple[_Ints, _Ints, _Ints],
        out: npt.NDArray[np.uint8],
        *,
        beneath: bool,
    ) -> int:
        """Read ranges of files, each of which is opened for that alone and is the indexed one before and after.

        Args:
            folder: see `open`.
            flags: see `open`.
            ranges: (k,) each: the numbers of the files, where the ranges begin, and their sizes.
            out: contiguous; gets them one after the other.
            beneath: see `open`.

        Returns:
            How many came, up to the first that did not; 0 without the library.
        """
        library = guard_library()
        numbers, starts, sizes = (np.ascontiguousarray(one, np.int64) for one in ranges)
        if library is None or not len(numbers):
            return 0
        if not numbers.shape == starts.shape == sizes.shape or not out.flags.c_contiguous:
            raise ValueError("there must be a start and a size for each number, and contiguous memory")
        count: int = library.emlio_read_indexed(
            self._table.ctypes.data,
            folder,
            flags,
            beneath,
            numbers.ctypes.data,
            starts.ctypes.data,
            sizes.ctypes.data,
            len(numbers),
            out.ctypes.data,
            out.nbytes,
        )
        return count

    def are_same(self, folder: int, numbers: _Ints) -> npt.NDArray[np.bool_]:
        """Return which of these files are the indexed ones, by name; none without the library. A link is none."""
        same = np.zeros(len(numbers), np.bool_)
        library = guard_library()
        if library is not None and len(numbers):
            wanted = np.ascontiguousarray(numbers, np.int64)
            library.emlio_look_at_files(
                self._table.ctypes.data, folder, wanted.ctypes.data, len(wanted), same.ctypes.data
            )
        return same


def close_files(descriptors: Sequence[int]) -> None:
    """Close files."""
    library = guard_library()
    if library is None:
        for descriptor in descriptors:
            os.close(descriptor)
    else:
        given = np.array(descriptors, np.int64)
        library.emlio_close_files(given.ctypes.data, len(given))


def read_files(descriptors: _Ints, offsets: _Ints, sizes: _Ints, places: _Ints, out: npt.NDArray[np.uint8]) -> int:
    """Read ranges of files to their places in memory; return how many were read before the first that was not, in full.

    Args:
        descriptors: (n,) of the open files.
        offsets: (n,) the first byte of each range.
        sizes: (n,) its bytes.
        places: (n,) where in `out` it begins.
        out: contiguous.
    """
    library = guard_library()
    if library is None:
        return 0
    given = [np.ascontiguousarray(each, np.int64) for each in (descriptors, offsets, sizes, places)]
    if len({len(each) for each in given}) > 1 or not out.flags.c_contiguous:
        raise ValueError("each range must have a file, an offset, a size and a place, in contiguous memory")
    pointers = [each.ctypes.data for each in given]
    return int(library.emlio_read_files(*pointers, len(descriptors), out.ctypes.data, out.nbytes))
