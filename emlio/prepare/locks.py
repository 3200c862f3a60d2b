"""Locks of a folder in which several processes write one dataset.

Each lock ends with its process, so a killed process leaves none. Where the file system has no locks,
nothing is locked: the user must start one process for each part.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from emlio.errors import ConfigError

__all__ = ["FileLock", "FolderLock", "is_locked", "locked", "owner_of"]


class FileLock:
    """A locked file, which is made if it does not exist, with the number of the process. `close` unlocks and removes it."""

    def __init__(self, path: Path, *, wait: bool) -> None:
        """Lock the file.

        Args:
            path: of the file.
            wait: whether to wait for another process.

        Raises:
            BlockingIOError: another process has locked it.
            OSError: it cannot be made.
        """
        self._fd = -1
        self._path = path
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                _lock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Another process removes the file, perhaps just before this one locks it.
                if _is_at(fd, path):
                    os.ftruncate(fd, 0)
                    os.write(fd, b"%d" % os.getpid())
                    self._fd, fd = fd, -1
                    return
            finally:
                if fd >= 0:
                    os.close(fd)

    def close(self) -> None:
        """Unlock the file, and remove it before. Closing again does nothing."""
        if self._fd >= 0:
            with suppress(OSError):
                if _is_at(self._fd, self._path):
                    self._path.unlink()
            _release(self._fd)
            self._fd = -1


def owner_of(path: Path) -> str:
    """Return who has locked a file, in words; "another process" if the file does not tell."""
    try:
        number = int(path.read_bytes())
    except (OSError, ValueError):
        return "another process"
    return "another writer of this process" if number == os.getpid() else f"another process ({number})"


_TRIES = 20
"""A folder is made so often at most, where others may be removing it, as a command does that failed."""


class FolderLock:
    """A folder, made if it does not exist, that other commands must not write to; several writers may.

    `close` unlocks it.

    Attributes:
        made: whether it did not exist.
    """

    def __init__(self, out: Path, *, alone: bool = False) -> None:
        """Lock the folder.

        Args:
            out: its path.
            alone: against writers, too.

        Raises:
            ConfigError: it cannot be written, or another command writes to it.
        """
        self.made = not out.exists()
        for left in reversed(range(_TRIES)):
            try:
                out.mkdir(parents=True, exist_ok=True)
                self._fd = os.open(out, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                if left and isinstance(error, FileNotFoundError | FileExistsError):
                    continue
                raise ConfigError(f"{out}: must be a writable directory: {error.strerror or error}") from error
            try:
                _lock(self._fd, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            except BlockingIOError as error:
                self.close()
                raise ConfigError(
                    f"{out}: another process is writing a dataset here. Wait, or choose another directory"
                ) from error
            if not left or _is_at(self._fd, out):
                return
            self.close()

    def close(self) -> None:
        """Unlock the folder. Closing again does nothing."""
        if self._fd >= 0:
            _release(self._fd)
            self._fd = -1


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Wait for the lock of a file, and hold it.

    Raises:
        ConfigError: the file cannot be made.
    """
    try:
        lock = FileLock(path, wait=True)
    except OSError as error:
        raise ConfigError(f"{path.parent}: must be a writable directory: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.close()


def is_locked(path: Path) -> bool:
    """Return whether another process has locked the file."""
    try:
        FileLock(path, wait=False).close()
    except BlockingIOError:
        return True
    return False


def _is_at(fd: int, path: Path) -> bool:
    """Return whether an open file is still the one of this path."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _release(fd: int) -> None:
    # Closing alone would leave the lock to a process that was forked meanwhile.
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def _lock(fd: int, how: int) -> None:
    try:
        fcntl.flock(fd, how)
    except BlockingIOError:
        raise
    except OSError:  # no locks on this file system
        pass
