"""Checking received records in the C library.

Covers: frames of TFRecord, checksums. Does not cover: error texts: None means that the caller must look itself.
"""

import numpy as np
import numpy.typing as npt

from emlio.native.library import library_for

__all__ = ["check_frames", "checksums", "joined_checksum"]

_Ints = npt.NDArray[np.int64]

_WORTH_BYTES = 16 << 10
"""Joining the checksum of a range takes as long as computing that of some kilobytes."""


def check_frames(payload: memoryview, sizes: _Ints, *, verify: bool) -> tuple[_Ints, _Ints] | None:
    """Return where the data of each TFRecord frame begin and end.

    Args:
        payload: the frames, without gaps.
        sizes: the size of each.
        verify: whether to compare the checksums of data.

    Returns:
        None without the library, and if anything is wrong with a frame.
    """
    library = library_for(len(payload))
    if library is None or not len(payload):
        return None
    data, sizes = np.frombuffer(payload, np.uint8), np.ascontiguousarray(sizes, np.int64)
    starts, ends = np.empty(len(sizes), np.int64), np.empty(len(sizes), np.int64)
    wrong = library.emlio_check_frames(
        data.ctypes.data, len(data), sizes.ctypes.data, len(sizes), verify, starts.ctypes.data, ends.ctypes.data
    )
    return None if wrong else (starts, ends)


def checksums(payload: memoryview, starts: _Ints, ends: _Ints) -> npt.NDArray[np.uint32] | None:
    """Return the CRC32C of each range of the payload; None without the library, and if one does not lie in it."""
    library = library_for(len(payload))
    if library is None or not len(payload):
        return None
    data = np.frombuffer(payload, np.uint8)
    starts, ends = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(ends, np.int64)
    if starts.shape != ends.shape:
        return None  # the library would read behind the shorter one
    crcs = np.empty(len(starts), np.uint32)
    wrong = library.emlio_crc32c_each(
        data.ctypes.data, len(data), starts.ctypes.data, ends.ctypes.data, len(starts), crcs.ctypes.data
    )
    return None if wrong else crcs


def joined_checksum(crcs: npt.NDArray[np.uint32], sizes: _Ints) -> int | None:
    """Return the CRC32C of ranges one after the other, from that of each; None without the library, and for short ranges."""
    library = library_for(0)
    crcs, sizes = np.ascontiguousarray(crcs, np.uint32), np.ascontiguousarray(sizes, np.int64)
    if library is None or crcs.shape != sizes.shape or int(sizes.sum()) < _WORTH_BYTES * len(sizes):
        return None
    return int(library.emlio_crc32c_joined(crcs.ctypes.data, sizes.ctypes.data, len(crcs)))
