"""Looking up where records lie in the C library.

Covers: the shards as C takes them, the call. Does not cover: error texts: None means that the caller must look itself.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from emlio.native.library import guard_library

__all__ = ["NativeShards"]

_Ints = npt.NDArray[np.int64]


class NativeShards:
    """Addresses of the arrays of many shards, which it keeps alive. Immutable, so threads may share it."""

    __slots__ = ("_arrays", "_table")

    def __init__(
        self, starts: Sequence[_Ints], ends: Sequence[_Ints], first_files: Sequence[int], file_steps: Sequence[int]
    ) -> None:
        """See the class.

        Args:
            starts: for each shard where each of its records begins.
            ends: where it ends.
            first_files: for each shard the number of its first record's file.
            file_steps: by how much that number rises from record to record.
        """
        kept = list(zip(starts, ends, strict=True))
        if not all(array.dtype == np.int64 and array.ndim == 1 for pair in kept for array in pair):
            raise ValueError("begins and ends of records must be rows of numbers of 64 bits")
        self._arrays = kept  # not copied
        columns = [
            [begin.ctypes.data for begin, _ in kept],
            [begin.strides[0] for begin, _ in kept],  # 0 if all records begin at the same place
            [end.ctypes.data for _, end in kept],
            [end.strides[0] for _, end in kept],
            [min(len(begin), len(end)) for begin, end in kept],
            list(first_files),
            list(file_steps),
        ]
        self._table = np.array(columns, np.int64)

    def locate(self, numbers: _Ints, records: _Ints) -> tuple[_Ints, _Ints, _Ints] | None:
        """Return the file of each record, and where it begins and ends there.

        Args:
            numbers: the shard of each record.
            records: its number in that shard.

        Returns:
            None without the library, and if there is no such shard or record.
        """
        library = guard_library()  # an index that is mapped may be read from a disk
        if library is None or numbers.shape != records.shape:
            return None
        numbers, records = np.ascontiguousarray(numbers, np.int64), np.ascontiguousarray(records, np.int64)
        files, starts, ends = (np.empty(len(numbers), np.int64) for _ in range(3))
        wrong = library.emlio_locate(
            self._table.ctypes.data,
            self._table.shape[1],
            numbers.ctypes.data,
            records.ctypes.data,
            len(numbers),
            files.ctypes.data,
            starts.ctypes.data,
            ends.ctypes.data,
        )
        return None if wrong else (files, starts, ends)
