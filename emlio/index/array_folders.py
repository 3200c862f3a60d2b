"""The folders with the arrays of an index: a new one for each index, all others are removed.

Several processes may store an index of the same dataset at once. Each writes a folder of its own,
under a shared lock. The process that is done last has the lock alone, and removes all folders but
the one that the index names by then. So no process waits while another one writes, and nothing is
left behind, not even by a process that was killed.

A process that has mapped the arrays of a removed folder keeps them. One that is just opening them
opens the new ones (emlio.index.range_index).

Covers: names, locks, removal. Does not cover: what the folders hold (emlio.index.range_index).
"""

import fcntl
import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["ArrayFolders", "is_array_folder"]

_NUMBER_BYTES = 6


def is_array_folder(place: Path, name: str) -> bool:
    """Return whether a folder of this name was made for the index at a place."""
    return re.fullmatch(f"{re.escape(place.stem)}-[0-9a-f]{{{2 * _NUMBER_BYTES}}}", name) is not None


class ArrayFolders:
    """The folders beside one index, while another one is stored. Used by one thread.

    Attributes:
        is_locked: whether the file system has locks.
    """

    def __init__(self, place: Path) -> None:
        """See the class.

        Args:
            place: the file of the index.

        Raises:
            OSError: its folder cannot be written.
        """
        self._place = place
        self._lock_file = os.open(place.with_suffix(".lock"), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        # This waits for a removal only.
        self.is_locked = self._lock(fcntl.LOCK_SH)

    def new(self) -> Path:
        """Return a new folder.

        Raises:
            OSError: it cannot be made.
        """
        folder = self._place.parent / f"{self._place.stem}-{secrets.token_hex(_NUMBER_BYTES)}"
        folder.mkdir()
        return folder

    def alone(self) -> bool:
        """Return whether no other process stores this index. If so, none begins until the end of the block."""
        return self.is_locked and self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove_all_but(self, kept: str) -> None:
        """Remove all folders but the one of this name; to be called while `alone`."""
        with suppress(OSError):
            for name in os.listdir(self._place.parent):
                if name != kept and is_array_folder(self._place, name):
                    shutil.rmtree(self._place.parent / name, ignore_errors=True)

    def _lock(self, how: int) -> bool:
        try:
            fcntl.flock(self._lock_file, how)
        except OSError:  # held by another process, or the file system has no locks
            return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock(fcntl.LOCK_UN)  # a forked child may have the descriptor, too
        os.close(self._lock_file)
