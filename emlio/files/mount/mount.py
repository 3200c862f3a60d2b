"""`Mount`, a tree at a directory: its threads, its beginning and its end."""

import errno
import logging
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from os import PathLike
from threading import Condition, Thread
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from emlio.errors import ClosedError, FileError
from emlio.files.mount.failures import Failures
from emlio.files.mount.mounting import MountId, attach, detach, mounts_at
from emlio.files.mount.source import Source
from emlio.native.fuse import Counts, FuseSession, Miss
from emlio.store.tree import Tree
from emlio.thread_name import show_thread_name
from emlio.waker import Waker

__all__ = ["Mount"]

_log = logging.getLogger(__name__)
_Ints = npt.NDArray[np.int64]

_SERVING: Final = 2
"""Threads that read the kernel's requests. They never need the interpreter's lock, and one can serve 100,000 a second."""

_ANSWERING: Final = 8
"""Threads that ask the source. Each asks for all that missed while it was busy, so more requests than that are under way."""

_WAIT_MS: Final = 60_000
_END_S: Final = 30.0
_UNMOUNTED_S: Final = 3.0
"""One that was unmounted before, but is in use, has requests as long as this process lives."""


class Mount:
    """A read-only tree mounted at a directory, until `close`.

    Reads are answered from the page cache, from what was pushed, or from the source. One that the source does not answer
    within the limit fails with EIO, so that no process waits for ever. Threads may share it. It belongs to its process: after
    a fork only the parent serves it.

    Attributes:
        directory: where it is, without links.
        number: its numbers.
        on_reads: is told what the kernel asked for.
        on_answered: is told the same, once it has the answers.
        failures: logs why files cannot be read.
        ended: wakes when it was taken away, by whatever means.
    """

    def __init__(
        self,
        tree: Tree,
        directory: str | PathLike[str],
        source: Source,
        *,
        limit_s: float = 60.0,
    ) -> None:
        """Mount it; from now on it can be used.

        Args:
            tree: the entries.
            directory: where to mount it: a folder that exists.
            source: where bytes come from that were not pushed.
            limit_s: how long a read may wait for the source.

        Raises:
            FileError: it cannot be mounted.
        """
        self.directory = os.path.realpath(directory)
        self.on_reads: Callable[[Sequence[Miss]], None] | None = None
        self.on_answered: Callable[[Sequence[Miss]], None] | None = None
        self._tree, self._source = tree, source
        self.failures = Failures(self.directory)
        self._changed = Condition()
        self._calls = 0
        self._closed = False
        self._device = attach(self.directory)
        self.number = next(reversed(mounts_at(self.directory)), MountId(0, 0))
        try:
            self._session = FuseSession(
                tree, self._device, uid=os.getuid(), gid=os.getgid(), limit_ms=int(limit_s * 1000)
            )
        except OSError as error:
            os.close(self._device)  # which ends the file system
            detach(self.directory, self.number)
            raise FileError(
                f"cannot mount at {self.directory}: {error.strerror}",
                errno=error.errno or errno.EINVAL,
                path=self.directory,
                offset=0,
            ) from error
        self.ended = Waker()
        self._session.mounted(os.fsencode(self.directory), self.number.device)
        tasks: list[tuple[str, Callable[[], object]]] = [("watch", self._session.watch)]
        tasks += [("serve", self._serve)] * _SERVING + [("answer", self._answer)] * _ANSWERING
        self._threads = [
            Thread(target=_named, args=(task,), name=f"emlio-fuse-{name}", daemon=True) for name, task in tasks
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_closed(self) -> bool:
        """True once it was closed here."""
        return self._closed

    @property
    def is_mounted(self) -> bool:
        """True until it is unmounted where this process sees it, also while another mount hides it.

        Open files, and copies that others see, serve on after that.
        """
        return any(map(self.number.may_be, mounts_at(self.directory)))

    def push(
        self,
        memory: npt.NDArray[np.uint8],
        entries: _Ints,
        offsets: _Ints,
        starts: _Ints,
        sizes: _Ints,
        withheld: _Ints,
    ) -> npt.NDArray[np.int32]:
        """Put bytes of files into the page cache: see `emlio.native.fuse.FuseSession.push`, with entries for inodes."""
        with self._call() as session:
            return session.push(memory, entries + 1, offsets, starts, sizes, withheld)

    def drop(self, entries: _Ints, offsets: _Ints, size: int, forgotten: npt.NDArray[np.bool_] | None = None) -> None:
        """Free the pages of files: see `emlio.native.fuse.FuseSession.drop`, with entries for inodes."""
        with self._call() as session:
            session.drop(entries + 1, offsets, size, forgotten)

    def counts(self) -> Counts:
        """Return what was counted since it was mounted."""
        return self._session.counts()

    def close(self) -> None:
        """Take the file system away, also if it is in use: what reads then fails. A second call does nothing."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
        self._session.stop()
        was_mounted = self.is_mounted
        if was_mounted:
            self._session.abort()
            detach(self.directory, self.number)
        until = time.monotonic() + (_END_S if was_mounted else _UNMOUNTED_S)
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0))
        left = [thread.name for thread in self._threads if thread.is_alive()]
        with self._changed:
            if not self._changed.wait_for(lambda: not self._calls, _END_S):
                left.append("a push")
        if left:  # what they use stays until the process ends
            _log.warning(
                "%s was unmounted, and programs that still use it get errors (%s)", self.directory, ", ".join(left)
            )
            return
        os.close(self._device)
        self._session.free()
        self.ended.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _call(self) -> Generator[FuseSession]:
        """Yield the session, which is not freed meanwhile."""
        with self._changed:
            if self._closed:
                raise ClosedError(f"the mount at {self.directory} was closed")
            self._calls += 1
        try:
            yield self._session
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    # ---- reads that miss ------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        self._session.serve()
        self.ended.wake()

    def _answer(self) -> None:
        while (told := self._session.wait(_WAIT_MS)) is not None:
            self._tell(self.on_reads, told)
            misses = np.array([miss for miss in told if miss.unique], np.int64)  # a tripwire's read was answered
            if len(misses):
                self._fetch(misses)
            self._tell(self.on_answered, told)

    def _tell(self, listener: Callable[[Sequence[Miss]], None] | None, reads: Sequence[Miss]) -> None:
        try:
            if reads and listener is not None:
                listener(reads)
        except Exception:  # noqa: BLE001  # reads must be answered all the same
            _log.exception("reads at %s were not looked at", self.directory)

    def _fetch(self, misses: _Ints) -> None:
        """Answer reads with bytes of the source, or with errors."""
        given = 0
        try:
            for read in self._source.read_ranges(misses[:, 1] - 1, misses[:, 2], misses[:, 3]):
                errors = np.zeros(len(read.starts), np.int32)
                for place, why in read.failures.items():
                    errors[place] = errno.EIO
                    path = os.fsdecode(self._tree.path(int(misses[given + place, 1]) - 1))
                    self.failures.tell(f"{path!r} cannot be read: {why}", reads=1)
                if not read.failures:
                    self.failures.end()
                memory = np.frombuffer(read.memory, np.uint8)
                part = misses[given : given + len(errors)]
                self._session.answer(part[:, 0], part[:, 1], memory, read.starts, read.sizes, errors)
                given += len(errors)
        except Exception as error:  # noqa: BLE001  # of any source
            if not isinstance(error, ClosedError):
                self.failures.tell(error, reads=len(misses) - given)
        left = misses[given:]
        nothing = np.zeros(len(left), np.int64)
        failed = np.full(len(left), errno.EIO, np.int32)
        self._session.answer(left[:, 0], left[:, 1], np.zeros(0, np.uint8), nothing, nothing, failed)


def _named(task: Callable[[], object]) -> None:
    show_thread_name()
    task()
