"""Atomic writing of files: under a temporary name in the same folder, then renamed."""

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from typing_extensions import Buffer

__all__ = ["write_atomically"]


def write_atomically(path: Path, parts: Iterable[Buffer], *, dir_fd: int | None = None) -> None:
    """Replace `path` atomically. Readers see the old file or the new one, even after a crash.

    Args:
        path: the file; a link there is replaced, not followed.
        parts: its bytes.
        dir_fd: an open folder that a relative path begins at; by default the current one.

    Raises:
        OSError: the folder cannot be written; no temporary file is left.
    """
    # Hidden, so that it is not taken for a shard; random, so that two processes may write the same
    # file at once.
    temporary = path.parent / f".{path.name}.{secrets.token_hex(6)}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=dir_fd)
    try:
        with os.fdopen(fd, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=dir_fd)
        raise
