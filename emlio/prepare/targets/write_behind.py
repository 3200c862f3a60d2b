"""A file that a thread of its own writes, while the next bytes are made.

Covers: how far the thread may lag behind, its errors, and closing the file at any moment. Does not cover: names of
files and syncing (emlio.prepare.targets.shard_file).
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread, get_ident

from typing_extensions import Buffer

__all__ = ["WriteBehind"]

_AHEAD_BYTES = 8 << 20
"""The bytes that may wait for the disk when `write` returns. So a piece of many bytes is written before it returns."""

_CALL_PIECES = 1000
"""The kernel accepts at most 1024 pieces per call."""

_FLUSH_BYTES = 8 << 20
"""From so many new bytes on the disk begins to write them, so that it works while records are made."""


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
