"""The limits of open files and mappings of a process, and the errors when they are reached.

Covers: asking the system. Does not cover: sharing the limits (emlio.store.opened.room).
"""

import errno
import os
import resource
from pathlib import Path

from emlio.errors import DatasetError
from emlio.interrupts import is_interrupt

__all__ = ["descriptor_limit", "is_used_up", "mapping_limit", "open_descriptors", "refusal_of"]

_USED_UP = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

_DESCRIPTORS = "/proc/self/fd"
_MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")
_USUAL_MAP_COUNT = 65_530
_UNLIMITED = 1 << 20


def descriptor_limit() -> int:
    """Return the number of descriptors that this process may have now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft >= 0 else _UNLIMITED


def open_descriptors() -> int | None:
    """Return the open descriptors of this process; None if none is left to count them, 0 if the system does not tell."""
    try:
        # The folder's size is the count since Linux 6.2; listing thousands takes milliseconds.
        return os.stat(_DESCRIPTORS).st_size or len(os.listdir(_DESCRIPTORS))
    except OSError as error:
        if is_interrupt(error):
            raise
        return None if is_used_up(error) else 0


def mapping_limit() -> int:
    """Return the number of mappings that a process of this host may have."""
    try:
        return int(_MAX_MAP_COUNT.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        if is_interrupt(error):
            raise
        return _USUAL_MAP_COUNT


def is_used_up(error: OSError) -> bool:
    """Return whether the system has no descriptor, memory or mapping left.

    Such an error says nothing about the file.
    """
    return error.errno in _USED_UP


def refusal_of(error: OSError, what: str) -> DatasetError | None:
    """Return the error if the system has no descriptor, memory or mapping left; else None.

    Args:
        error: the system's error.
        what: the name of what could not be opened.
    """
    match error.errno:
        case errno.EMFILE:
            return DatasetError(
                f"{what} cannot be opened: this process has reached its limit of {descriptor_limit():,} open files. "
                "Raise the limit (ulimit -n, or LimitNOFILE in its unit), or close other files",
                passing=True,
            )
        case errno.ENFILE:
            return DatasetError(
                f"{what} cannot be opened: this host has reached its limit of open files. Raise the limit: sysctl "
                "fs.file-max",
                passing=True,
            )
        case errno.ENOMEM:
            return DatasetError(
                f"{what} cannot be mapped: out of memory, or this process has reached its limit of "
                f"{mapping_limit():,} mappings. Raise the limit (sysctl -w vm.max_map_count=1048576), or the limit "
                "of memory (ulimit -v)",
                passing=True,
            )
        case _:
            return None
