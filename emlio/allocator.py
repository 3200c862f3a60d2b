"""How much freed memory the C library keeps for this process.

libzmq allocates and frees a piece of memory for each message. glibc either gives such pieces back to the kernel one by one, and
then each is faulted in again page by page, or keeps them; which of the two, and how much, follows from what was freed before.

Covers: having it keep large pieces, or none of them. Does not cover: buffers for records, which have bounds of their own
(emlio.reading.buffers, emlio.receiver.window).
"""

import ctypes
import os

__all__ = ["give_back_freed_memory", "keep_freed_memory", "keep_no_large_pieces"]

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_LARGEST_REUSED_BYTES = 32 << 20
"""The most glibc allows: larger pieces are mapped and unmapped one by one."""

_LARGE_BYTES = 128 << 10
"""What glibc begins with, before it learns from what is freed."""

_USERS_OWN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")

_LIBRARY = ctypes.CDLL(None)


def keep_freed_memory(most_bytes: int) -> bool:
    """Have it keep so much for the next pieces, for each thread that frees some, and no more.

    Returns:
        False where there is no glibc to tell, or the user has told it something else.
    """
    return _tell(_M_MMAP_THRESHOLD, _LARGEST_REUSED_BYTES) and _tell(_M_TRIM_THRESHOLD, most_bytes)


def keep_no_large_pieces() -> bool:
    """Have it map each large piece by itself and give it back when it is freed, whatever was freed before.

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
    """Return to the kernel what is free, but for the end of each thread's heap; does nothing where there is no glibc."""
    trim = getattr(_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)
