"""A disk that is full, or broken."""

import os
import shutil
from pathlib import Path

from emlio.errors import DatasetError
from emlio.units import format_size

__all__ = ["disk_error", "refuse_full_disk"]


def disk_error(path: Path, needed_bytes: int, error: OSError) -> DatasetError:
    """Return the error for a file that cannot be written."""
    try:
        free = format_size(shutil.disk_usage(path.parent).free)
    except OSError:
        free = "an unknown amount"
    return DatasetError(
        f"{path}: cannot be written: {error.strerror or error}. It needs about {needed_bytes} bytes "
        f"({format_size(needed_bytes)}), its file system has {free} free. Free some space and run the same command "
        "again to continue"
    )


def refuse_full_disk(out: Path, needed_bytes: int) -> None:
    """Fail early if the disk is too small, instead of after hours of writing.

    Raises:
        DatasetError: the directory's file system has less free space.
    """
    room = os.statvfs(out)
    free = room.f_bavail * room.f_frsize
    if needed_bytes > free:
        raise DatasetError(
            f"{out}: needs about {needed_bytes} bytes ({format_size(needed_bytes)}) more, its file system has "
            f"{free} ({format_size(free)}) free"
        )
