"""Copying records to the rows of an array in the C library.

Covers: the call. Does not cover: error texts: False means that the caller must do it itself.
"""

import numpy as np
import numpy.typing as npt

from emlio.native.library import library_for

__all__ = ["place_rows"]

_Ints = npt.NDArray[np.int64]


def place_rows(
    payload: memoryview,
    starts: _Ints,
    ends: _Ints,
    slots: _Ints,
    rows: npt.NDArray[np.uint8],
    lengths: _Ints | None = None,
) -> bool:
    """Copy each range of a payload to its row, with zeros behind it; return whether that was done.

    Args:
        payload: the bytes.
        starts: where each range begins.
        ends: where it ends.
        slots: the number of its row.
        rows: (height, width), contiguous.
        lengths: (height,), gets the length of each range; None if it is not wanted.

    Returns:
        False without the library, and if a range does not lie in the payload or does not fit into its row.
    """
    library = library_for(max(len(payload), rows.nbytes))
    if library is None or not len(payload) or not (starts.shape == ends.shape == slots.shape):
        return False
    if not rows.flags.c_contiguous or rows.dtype != np.uint8 or rows.ndim != 2:
        return False
    if lengths is not None and (
        lengths.shape != rows.shape[:1] or not lengths.flags.c_contiguous or lengths.dtype != np.int64
    ):
        return False
    data = np.frombuffer(payload, np.uint8)
    starts, ends, slots = (np.ascontiguousarray(each, np.int64) for each in (starts, ends, slots))
    return not library.emlio_place_rows(
        data.ctypes.data,
        len(data),
        starts.ctypes.data,
        ends.ctypes.data,
        slots.ctypes.data,
        len(starts),
        rows.ctypes.data,
        *rows.shape,
        None if lengths is None else lengths.ctypes.data,
    )
