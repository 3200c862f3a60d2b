"""Reading a range of a shard's file.

A truncated file kills a process that has it mapped, but only shortens a pread.
"""

import os
from pathlib import Path

from emlio.errors import DatasetError
from emlio.open_limits import is_used_up

__all__ = ["read_failed", "read_into"]


def read_into(fd: int, buffer: memoryview, offset: int, path: Path) -> int:
    """Fill `buffer` from `offset` and return the number of bytes.

    Fewer only at the end of the file.

    Raises:
        DatasetError: the disk or the file system failed.
    """
    done = 0
    while done < len(buffer):
        try:
            got = os.preadv(fd, [buffer[done:]], offset + done)
        except OSError as error:
            raise read_failed(path, len(buffer), offset, error) from error
        if got == 0:
            break
        done += got
    return done


def read_failed(path: Path, size_bytes: int, offset: int, error: OSError) -> DatasetError:
    """Return the error of a read that the disk or the file system failed."""
    return DatasetError(
        f"{path}: reading {size_bytes} bytes at offset {offset} failed: {error.strerror or error}",
        passing=is_used_up(error),
    )
