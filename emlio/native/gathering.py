"""Copying ranges of mapped files in the C library, guarded against files that become shorter.

Touching a mapping behind its file's end raises SIGBUS, which ends a process. A process that takes the guard hears of it as
of a short read instead.

Covers: taking the guard, the call. Does not cover: mapping files, what to do without the guard (emlio.reading.gather).
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.native.library import guard_library

__all__ = ["gather", "guard", "is_guarded"]

_Ints = npt.NDArray[np.int64]

_LEAST: Final = -1
"""Below is no number of runs, but what went wrong."""


def guard() -> bool:
    """Take SIGBUS for this process, whose own it must be; return whether that was done.

    Another handler that was there before still gets each signal that is not of `gather`.
    """
    library = guard_library()
    return library is not None and library.emlio_guard_install() == 0


def is_guarded() -> bool:
    """Return whether this process has the guard, and still handles the signal."""
    library = guard_library()
    return library is not None and bool(library.emlio_guard_holds())


def gather(
    mappings: _Ints, lengths: _Ints, starts: _Ints, sizes: _Ints, places: _Ints, out: npt.NDArray[np.uint8]
) -> int | None:
    """Copy runs of mapped files, without the interpreter's lock.

    Args:
        mappings: the address at which each run's file is mapped.
        lengths: the bytes of each mapping.
        starts: where each run begins in its file.
        sizes: its length.
        places: where it goes in `out`.
        out: the destination, contiguous.

    Returns:
        The number of runs that were copied; the one after them cannot be read. None without the library, without the guard,
        and if a run does not lie in its mapping or in `out`: then nothing that is there means anything.
    """
    library = guard_library()
    if library is None or not (mappings.shape == lengths.shape == starts.shape == sizes.shape == places.shape):
        return None
    if out.dtype != np.uint8 or not out.flags.c_contiguous or not out.flags.writeable:
        return None
    kept = [np.ascontiguousarray(each, np.int64) for each in (mappings, lengths, starts, sizes, places)]
    copied = int(library.emlio_gather(*(each.ctypes.data for each in kept), len(kept[0]), out.ctypes.data, out.nbytes))
    return copied if copied > _LEAST else None
