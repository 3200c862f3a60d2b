"""How the C library keeps the memory of received messages.

libzmq allocates every message and frees it when the user drops the batch. glibc gives such memory back to the kernel at once and
asks for it again for the next message; the page faults cost a fifth of a rank's CPU (docs/adr/0007-freed-memory.md).

Covers: telling glibc to keep what is freed for the next message. Does not cover: bounding what is used (emlio.receiver.window).
"""

import ctypes
import os

__all__ = ["keep_freed_memory"]

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_LARGEST_REUSED_BYTES = 32 << 20
"""The most glibc allows: larger pieces are mapped and unmapped one by one."""

_KEPT_BYTES = 128 << 20
"""What each arena may keep unused. Messages are received by one thread, so in practice there is one such arena."""

_USERS_OWN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Tell glibc, for this process; False where there is no glibc to tell, or the user has told it something else."""
    if any(name in os.environ for name in _USERS_OWN):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    done: int = mallopt(_M_MMAP_THRESHOLD, _LARGEST_REUSED_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    return bool(done)
