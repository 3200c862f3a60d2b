"""A shard file that is written atomically.

Covers: collecting pieces for large calls, disk errors, the final name. Does not cover: the thread that writes
(emlio.prepare.targets.write_behind), the form of the records (emlio.prepare.targets.tfrecord_shard,
emlio.prepare.targets.tar_shard), what lies beside it.
"""

import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from typing_extensions import Buffer

from emlio.prepare.disk import disk_error
from emlio.prepare.targets.write_behind import WriteBehind

__all__ = ["ShardFile"]

_WRITE_BYTES = 4 << 20
_WRITE_PIECES = 1000


class ShardFile:
    """A shard under a temporary name. It belongs to one thread. Some 12 MiB of it, and the last record, may wait for the disk.

    `commit` gives the file its final name; closing it without a commit removes it.

    Attributes:
        path: its final name.
        size_bytes: how much it holds.
    """

    def __init__(self, path: Path, expected_bytes: int) -> None:
        """Make the file.

        Args:
            path: its final name.
            expected_bytes: for errors.

        Raises:
            DatasetError: the folder cannot be written.
        """
        self.path = path
        self.size_bytes = 0
        self._expected_bytes = expected_bytes
        # The same form as in emlio.store.atomic_file: hidden, and recognised by the clean-up after
        # a killed process.
        self._temporary = path.parent / f".{path.name}.{secrets.token_hex(6)}.tmp"
        self._pieces: list[Buffer] = []
        self._waiting_bytes = 0
        try:
            fd = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise disk_error(path, expected_bytes, error) from error
        self._behind: WriteBehind | None = WriteBehind(fd)

    def append(self, pieces: Sequence[Buffer], size_bytes: int) -> None:
        """Add pieces, which must not change until `commit`.

        Args:
            pieces: the bytes.
            size_bytes: of all of them.

        Raises:
            DatasetError: the disk is full or broken, which may have stopped earlier pieces.
        """
        self._pieces += pieces
        self.size_bytes += size_bytes
        self._waiting_bytes += size_bytes
        if self._waiting_bytes >= _WRITE_BYTES or len(self._pieces) >= _WRITE_PIECES:
            self._write_out()

    def commit(self, check: Callable[[Path], None] | None) -> None:
        """Sync the file to disk, check what it holds there, and give it its final name.

        Args:
            check: reads the file back and raises an error if it holds other bytes; None for no check.

        Raises:
            DatasetError: the disk is full or broken.
        """
        behind = self._write_out()
        try:
            fd = behind.drain()
            os.fsync(fd)
            # Otherwise reading back would check the page cache, not the disk.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise disk_error(self.path, self._expected_bytes, error) from error
        if check is not None:
            check(self._temporary)
        try:
            self._temporary.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)  # otherwise the name may be lost in a power cut, but not what describes the shard
            finally:
                os.close(folder)
        except OSError as error:
            raise disk_error(self.path, self._expected_bytes, error) from error

    def close(self) -> None:
        """Close the file, and remove it if it was not committed. Closing again does nothing."""
        behind, self._behind = self._behind, None
        if behind is None:
            return
        self._pieces.clear()
        try:
            behind.close()
        finally:
            self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_out(self) -> WriteBehind:
        if self._behind is None:
            raise ValueError(f"the shard {self.path} is closed")
        pieces, self._pieces = self._pieces, []
        self._waiting_bytes = 0
        try:
            self._behind.write(pieces)
        except OSError as error:
            raise disk_error(self.path, self._expected_bytes, error) from error
        return self._behind
