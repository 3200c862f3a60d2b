"""A small disk that can be full.

Covers: whether this machine lets us mount one, mounting, filling, emptying, unmounting. Does not cover: what a
daemon makes of it.
"""

import errno
import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["SmallDisk", "why_no_disk"]

_SIZE = "256k"
_PART = bytes(4096)


def _mount(folder: Path) -> str | None:
    """Mount one there; why that failed, or None."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip()


def why_no_disk() -> str | None:
    """Why no disk can be mounted here, or None where it can."""
    with tempfile.TemporaryDirectory() as folder:
        reason = _mount(Path(folder))
        if reason is None:
            subprocess.run(["umount", folder], check=True)
        return reason


class SmallDisk:
    """A file system of a quarter of a megabyte in a folder; unmounted at the end."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        reason = _mount(folder)
        if reason is not None:
            raise OSError(f"a small disk must be mounted at {folder}: {reason}")
        self._folder = folder
        self._filling = folder / "filling"

    def fill(self) -> None:
        """Leave no room."""
        with self._filling.open("ab", buffering=0) as file:
            while True:
                try:
                    file.write(_PART)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    return

    def empty(self) -> None:
        """Give the room back."""
        self._filling.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it, whoever still has a file open there."""
        if os.path.ismount(self._folder):
            subprocess.run(["umount", "--lazy", str(self._folder)], check=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
