"""Atomic writing of files: under a temporary name in the same folder, then renamed."""

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from typing_extensions import Buffer

__all__ = ["write_atomically"]


def write_atomically(path: Path, parts: Iterable[Buffer]) -> None:
    """Replace `path` atomically. Readers see the old file or the new one, even after a crash.

    Args:
        path: the file; a link there is replaced, not followed.
        parts: its bytes.

    Raises:
        OSError: the folder cannot be written; no temporary file is left.
    """
    # Hidden, so that it is not taken for a shard; random, so that two processes may write the same
    # file at once.
    temporary = path.parent / f".{path.name}.{secrets.token_hex(6)}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(fd, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
