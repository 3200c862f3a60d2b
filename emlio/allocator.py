"""Settings of glibc's allocator: how much freed memory it keeps for this process.

libzmq allocates and frees a piece of memory for each message. glibc either returns such pieces to
the kernel one by one, so that each new one is faulted in page by page, or keeps them. Which of the
two, and how much it keeps, depends on what was freed before.

Covers: making it keep large pieces, or none of them. Does not cover: buffers for records, which
have limits of their own (emlio.reading.buffers, emlio.receiver.placement.grants).
"""

import ctypes
import os

__all__ = ["give_back_freed_memory", "keep_freed_memory", "keep_no_large_pieces"]

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_LARGEST_REUSED_BYTES = 32 << 20
"""The most that glibc allows: larger pieces are mapped and unmapped one by one."""

_LARGE_BYTES = 128 << 10
"""The threshold that glibc begins with, before it adapts to what is freed."""

_USERS_OWN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")

_LIBRARY = ctypes.CDLL(None)


def keep_freed_memory(most_bytes: int) -> bool:
    """Let glibc keep up to `most_bytes` of freed memory, for each thread that frees some.

    Returns:
        False if there is no glibc, or the user has set its options.
    """
    return _tell(_M_MMAP_THRESHOLD, _LARGEST_REUSED_BYTES) and _tell(_M_TRIM_THRESHOLD, most_bytes)


def keep_no_large_pieces() -> bool:
    """Let glibc map each large piece by itself, and unmap it when it is freed.

    This holds whatever was freed before.

    Returns:
        As `keep_freed_memory`.
    """
    return _tell(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def _tell(what: int, value: int) -> bool:
    mallopt = getattr(_LIBRARY, "mallopt", None)
    if mallopt is None or any(name in os.environ for name in _USERS_OWN):
        return False
    return bool(mallopt(what, value))


def give_back_freed_memory() -> None:
    """Return free memory to the kernel, except the end of each thread's heap.

    Does nothing if there is no glibc.
    """
    trim = getattr(_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)
