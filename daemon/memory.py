"""What the C library keeps of the memory that sessions used.

libzmq and Python allocate for each session; glibc keeps what they free for later and gives little of it back. After a hundred
ranks a daemon would look as if it still served some of them.

Covers: giving it back. Does not cover: buffers for records, which have a bound of their own (emlio.reading.buffers).
"""

import ctypes

__all__ = ["give_back_freed_memory"]

_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_back_freed_memory() -> None:
    """Tell glibc to return to the kernel what is free; does nothing where there is no glibc."""
    if _TRIM is not None:
        _TRIM(0)
