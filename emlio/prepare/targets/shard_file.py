"""A shard file that is written atomically."""

import os
import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread, get_ident
from typing import Self

from typing_extensions import Buffer

from emlio.prepare.disk import disk_error

__all__ = ["ShardFile", "WriteBehind"]

_AHEAD_BYTES = 8 << 20
"""The bytes that may wait for the disk when `write` returns. So a piece of many bytes is written before it returns."""

_CALL_PIECES = 1000
"""The kernel accepts at most 1024 pieces per call."""

_FLUSH_BYTES = 8 << 20
"""From so many new bytes on the disk begins to write them, so that it works while records are made."""


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

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_out(self) -> "WriteBehind":
        if self._behind is None:
            raise ValueError(f"the shard {self.path} is closed")
        pieces, self._pieces = self._pieces, []
        self._waiting_bytes = 0
        try:
            self._behind.write(pieces)
        except OSError as error:
            raise disk_error(self.path, self._expected_bytes, error) from error
        return self._behind


class WriteBehind:
    """A descriptor and the thread that writes to it. All methods are for one thread, but `close` is for any.

    The thread owns the descriptor once it runs, and closes it as the last thing it does. `close` may therefore
    be called by the thread itself, as the garbage collector does if it runs there.
    """

    def __init__(self, fd: int) -> None:
        """Take over a descriptor.

        Args:
            fd: open for writing.
        """
        self._fd = fd
        # These queues may be used while another call of theirs is interrupted, as a collector does.
        self._calls = SimpleQueue[list[memoryview] | None]()
        self._returned = SimpleQueue[None]()
        self._asked = 0
        self._done = 0  # bytes; the thread's
        self._error: Exception | None = None  # the thread's
        self._flushed_bytes = self._written_bytes = 0  # the thread's
        self._closed = False
        self._thread: Thread | None = None

    def write(self, pieces: Sequence[Buffer]) -> None:
        """Write pieces, which must not change until they are written, after those before.

        Args:
            pieces: the bytes.

        Raises:
            OSError: the disk is full or broken; it may be the error of earlier pieces.
        """
        views = [memoryview(piece) for piece in pieces]
        if not self._has_thread():
            self._write(views)
            return
        self._asked += sum(view.nbytes for view in views)
        self._calls.put(views)
        self._wait(_AHEAD_BYTES)

    def drain(self) -> int:
        """Wait until the kernel has all pieces.

        Returns:
            The descriptor, which no thread uses until the next `write`.

        Raises:
            OSError: the disk is full or broken.
        """
        self._wait(0)
        return self._fd

    def close(self) -> None:
        """Forget what is not written, and close the descriptor. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._thread is None:
            os.close(self._fd)
            return
        self._calls.put(None)
        if self._thread.ident != get_ident() and not sys.is_finalizing():
            with suppress(RuntimeError):  # Ctrl-C came before the thread said that it runs
                self._thread.join()

    def _has_thread(self) -> bool:
        """Return whether the thread will write; if not, the caller must do it, and nothing before is unwritten.

        Once Python tears its modules down, no other thread gets to run any more.
        """
        if sys.is_finalizing():
            self._wait(0)
            return False
        if self._thread is None:
            # A daemon: a program that ends without closing its file must not hang.
            self._thread = Thread(target=self._run, name="emlio-write", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # Python is about to end and starts no more
                self._thread = None
                return False
        return True

    def _wait(self, left: int) -> None:
        """Wait until no more than `left` bytes are unwritten; raise what stopped the thread."""
        # The counters decide, and what the queue brings only wakes: Ctrl-C may come between any two lines here.
        while self._asked - self._done > left and self._error is None:
            if sys.is_finalizing():
                raise OSError("Python ended before all was written; close the file before the program ends")
            self._returned.get()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while (views := self._calls.get()) is not None:
                size = sum(view.nbytes for view in views)
                # After an error the bytes that follow would lie in the wrong place.
                if self._error is None and not self._closed:
                    try:
                        self._write(views)
                    except Exception as error:  # noqa: BLE001  # raised by the next call
                        self._error = error
                views = None  # not kept while the thread waits
                self._done += size
                self._returned.put(None)
        finally:
            os.close(self._fd)

    def _write(self, views: list[memoryview]) -> None:
        while views:
            written = os.writev(self._fd, views[:_CALL_PIECES])
            self._written_bytes += written
            done = 0
            while done < len(views) and written >= len(views[done]):
                written -= len(views[done])
                done += 1
            del views[:done]
            if written:
                views[0] = views[0][written:]
        new = self._written_bytes - self._flushed_bytes
        if new >= _FLUSH_BYTES:
            # The kernel starts to write, and frees pages that are on the disk.
            os.posix_fadvise(self._fd, self._flushed_bytes, new, os.POSIX_FADV_DONTNEED)
            self._flushed_bytes = self._written_bytes
