"""The kernel's name of a thread.

Before 3.14, Python does not tell the kernel a thread's name, so `top -H`, `perf` and `emlio-bench
ranks` show one name for all threads.
"""

from contextlib import suppress
from pathlib import Path
from threading import current_thread

__all__ = ["show_thread_name"]

_MOST_BYTES = 15
_OWN = Path("/proc/thread-self/comm")


def show_thread_name() -> None:
    """Set the kernel's name of this thread to Python's, as far as it fits; ignore errors."""
    with suppress(OSError):
        _OWN.write_bytes(current_thread().name.encode()[:_MOST_BYTES])
