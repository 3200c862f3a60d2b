"""Reading a range of a shard's file completely, or saying why not.

Covers: pread into memory, with the file's name in every error. Does not cover: what the bytes mean, and mappings: a
mapped file that is cut short kills the process, a pread only comes back short.
"""

import os
from pathlib import Path

from emlio.errors import DatasetError
from emlio.open_limits import is_used_up

__all__ = ["read_at", "read_into"]


def read_into(fd: int, buffer: memoryview, offset: int, path: Path) -> int:
    """Fill `buffer` from `offset`; fewer bytes come back only where the file ends.

    Raises:
        DatasetError: the disk or the file system failed.
    """
    done = 0
    while done < len(buffer):
        try:
            got = os.preadv(fd, [buffer[done:]], offset + done)
        except OSError as error:
            raise _failed(path, len(buffer), offset, error) from error
        if got == 0:
            break
        done += got
    return done


def read_at(fd: int, size_bytes: int, offset: int, path: Path) -> bytes:
    """The bytes from `offset`; fewer than `size_bytes` only where the file ends. For reads of a few bytes.

    Raises:
        DatasetError: the disk or the file system failed.
    """
    try:
        return os.pread(fd, size_bytes, offset)
    except OSError as error:
        raise _failed(path, size_bytes, offset, error) from error


def _failed(path: Path, size_bytes: int, offset: int, error: OSError) -> DatasetError:
    return DatasetError(
        f"{path}: reading {size_bytes} bytes at offset {offset} failed: {error.strerror or error}",
        passing=is_used_up(error),
    )
