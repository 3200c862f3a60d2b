"""A handle for reading and writing files past the page cache."""

import os
import time
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field
from operator import index
from threading import Condition, Thread, current_thread
from typing import Final, Self, SupportsIndex
from weakref import WeakKeyDictionary

from emlio.aio.interval import Setting
from emlio.aio.memory import memory_of
from emlio.aio.opened_file import OpenedFile, open_file
from emlio.aio.transfers import Task, Transfers
from emlio.aio.tuner import Tune, TunedTransfers
from emlio.errors import ClosedError, ConfigError
from emlio.native.disk import ALIGNMENT, DiskQueue
from emlio.units import parse_size

__all__ = ["AioFigures", "AioHandle", "Request"]

_MOST_BLOCK_BYTES: Final = 64 << 20
_MOST_DEPTH: Final = 4096
_MOST_BYTES: Final = 1 << 62  # of a file: more than any file system's limit
_THREADS: Final = 2
"""One waits for the disk while the other prepares what was asked for meanwhile."""

_File = str | os.PathLike[str] | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One transfer between memory and a file.

    Attributes:
        buffer: as many bytes as it has are read or written. See `AioHandle`.
        file: path or descriptor of the file.
        offset: the first byte in the file.
        write: whether the buffer is written to the file.
    """

    buffer: object
    file: _File
    offset: int = 0
    write: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AioFigures:
    """The transfers of a handle since it was opened.

    Attributes:
        reads, writes: requests that are complete.
        read_bytes, written_bytes: their bytes.
        failed: requests that failed.
        busy_ns: the time for which requests were carried out, summed over threads.
    """

    reads: int = 0
    writes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    failed: int = 0
    busy_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Job:
    """The requests of one call, and the thread that asked."""

    tasks: list[Task]
    asked: Thread = field(default_factory=current_thread)

    @property
    def error(self) -> Exception | None:
        """The first error."""
        return next((task.error for task in self.tasks if task.error is not None), None)

    def close(self) -> None:
        """Close the files. What a file system tells only then is the error of all requests of the file."""
        for file in {task.file for task in self.tasks}:
            try:
                file.close()
            except OSError as error:
                if error.errno is None:  # not the system's: a signal handler raised it
                    raise
                for task in self.tasks:
                    if task.file is file and task.error is None:
                        task.fail(error)


class AioHandle:
    """Reads and writes of files, past the page cache where the file system offers it.

    A buffer is a contiguous NumPy array, a tensor of torch, or an object with Python's buffer interface. Transfers whose
    offset and memory are multiples of 4096 are not copied (`aligned` returns such memory); others go through memory of the
    handle, at most `queue_depth` blocks for each call. A tensor on a GPU is copied by way of the host.

    Requests that are under way together must not overlap. Threads may share a handle; its owner closes it. A `wait` is for
    the requests of all threads, and an error is told to the thread that asked, too, if another one has waited.

    Attributes:
        block_size: the bytes of the largest transfer; a larger request is cut into several. This and the next are those at
            first if a model sets them: see `setting`.
        queue_depth: how many transfers the disks have at once.
        kind: "io_uring" or "aio".
    """

    def __init__(
        self,
        block_size: int | str = "1MiB",
        queue_depth: int = 32,
        *,
        direct: bool = True,
        kind: str | None = None,
        tune: str | os.PathLike[str] | Tune = "off",
    ) -> None:
        """Open the handle.

        Args:
            block_size: see the class; a multiple of 4096, such as "128KiB".
            queue_depth: see the class.
            direct: False to use the page cache for all files.
            kind: see the class; by default the first that this system allows.
            tune: "learned" to let models change block size and depth between calls; the folder of models of your own, read.npz
                and write.npz; or a decider of your own.

        Raises:
            ConfigError: an argument cannot be used, or this system has no such queue.
        """
        try:
            self.block_size = parse_size(block_size)
        except ConfigError as error:
            raise ConfigError(f"block_size {error}") from error
        if not 0 < self.block_size <= _MOST_BLOCK_BYTES or self.block_size % ALIGNMENT:
            raise ConfigError(
                f"block_size must be a multiple of {ALIGNMENT} and at most {_MOST_BLOCK_BYTES}, got {self.block_size}"
            )
        self.queue_depth = _checked_depth(queue_depth)
        if kind not in (None, "io_uring", "aio"):
            raise ConfigError(f"kind must be io_uring or aio, got {kind!r}")
        tuned = Tune.parse(tune)
        try:
            self._queue = DiskQueue(self.queue_depth, kind)
        except OSError as error:
            raise ConfigError(f"this system offers no queue of transfers: {error.strerror}") from error
        self.kind = self._queue.kind
        self._direct = direct
        self._setting = Setting(block_bytes=self.block_size, depth=self.queue_depth)
        self._transfers: Transfers | TunedTransfers = (
            Transfers(self._queue, self.block_size, self.queue_depth)
            if tuned is None
            else TunedTransfers(self._queue, self._setting, tuned)
        )
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="emlio-aio")
        self._process = os.getpid()
        self._changed = Condition()
        self._inside = 0  # calls that use the queue
        self._closed = False
        self._figures = AioFigures()
        self._pending: list[_Job] = []
        self._turns: list[Future[None]] = []
        self._begun: list[_Job] = []  # since the last `wait`
        self._untold: WeakKeyDictionary[Thread, Exception] = WeakKeyDictionary()

    # ---- what a user calls ----------------------------------------------------------------------------------------

    def pread(self, buffer: object, file: _File, offset: int = 0) -> int:
        """Fill the buffer with bytes of a file, and return how many.

        Raises:
            FileError: the file cannot be read, or ends before the buffer is full.
            ConfigError: an argument cannot be used.
            ClosedError: the handle was closed.
        """
        return self._now(Request(buffer=buffer, file=file, offset=offset))

    def pwrite(self, buffer: object, file: _File, offset: int = 0) -> int:
        """Write the buffer to a file, which is made if it is absent and never shortened; return how many bytes.

        What was written survives a power failure after `os.fsync` of the file.

        Raises:
            FileError: the file cannot be written; it may then have its new size, with zeros in place of bytes.
            ConfigError: an argument cannot be used.
            ClosedError: the handle was closed.
        """
        return self._now(Request(buffer=buffer, file=file, offset=offset, write=True))

    def async_pread(self, buffer: object, file: _File, offset: int = 0) -> None:
        """Begin a read; see `submit`."""
        self.submit([Request(buffer=buffer, file=file, offset=offset)])

    def async_pwrite(self, buffer: object, file: _File, offset: int = 0) -> None:
        """Begin a write; see `submit`."""
        self.submit([Request(buffer=buffer, file=file, offset=offset, write=True)])

    def submit(self, requests: Iterable[Request]) -> None:
        """Begin requests, all or none. Their buffers must not be used before `wait` returns.

        Raises:
            FileError: a file cannot be opened.
            ConfigError: a request cannot be carried out, or the system gives no thread for it.
            ClosedError: the handle was closed.
        """
        with self._used():
            job = self._opened(requests)
            with self._changed:
                self._pending.append(job)
                try:
                    self._turns.append(self._threads.submit(self._take_turn))
                except RuntimeError as error:
                    self._pending.remove(job)
                    job.close()
                    raise ConfigError(f"the system gives no thread for requests: {error}") from error
                self._begun.append(job)

    def wait(self) -> int:
        """Wait for all requests that were begun, and return how many were completed since the last call.

        Raises:
            FileError: the first of those that failed. All have ended; those that did not fail are complete.
            ClosedError: the handle was closed.
        """
        with self._used():
            with self._changed:
                turns, seen = [*self._turns], [*self._begun]
            for turn in turns:  # a later one may have taken the job of an earlier one
                turn.result()
            with self._changed:
                self._turns = [turn for turn in self._turns if not turn.done()]
                left = set(self._begun)  # another thread may have waited for some
                ended = [job for job in seen if job in left]
                left.difference_update(ended)
                self._begun = [job for job in self._begun if job in left]
                for job in ended:
                    if job.error is not None and job.asked is not current_thread():
                        # Without its traceback, whose frames would keep the jobs, and so the threads that asked.
                        self._untold.setdefault(job.asked, copy(job.error))
                errors = (self._untold.pop(current_thread(), None), *(job.error for job in seen))
        for error in errors:
            if error is not None:
                raise error
        return sum(len(job.tasks) for job in ended)

    def setting(self, *, write: bool) -> Setting:
        """Return the block size and the depth that hold now for reads or for writes."""
        tuned = self._transfers
        return tuned.setting(write=write) if isinstance(tuned, TunedTransfers) else self._setting

    def figures(self) -> AioFigures:
        """Return what was done so far; see `emlio.metrics.serve_metrics`. Any thread may call it, also after the end."""
        return self._figures

    def close(self) -> None:
        """Wait for all requests, and close the handle. Their errors are not told."""
        if self._process != os.getpid():
            return
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._inside)
        self._threads.shutdown()
        if isinstance(self._transfers, TunedTransfers):
            self._transfers.close()
        self._queue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- files ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _used(self) -> Generator[None]:
        if self._process != os.getpid():
            raise ClosedError("the handle belongs to another process: open one after the fork")
        with self._changed:
            if self._closed:
                raise ClosedError("the handle is closed")
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def _opened(self, requests: Iterable[Request]) -> _Job:
        """Check requests and open their files, each once."""
        files: dict[tuple[object, bool], OpenedFile] = {}
        with ExitStack() as stack:
            tasks: list[Task] = []
            for request in requests:
                memory = memory_of(request.buffer, written=not request.write)
                offset = _checked_offset(request.offset, memory.size_bytes)
                key = (request.file, request.write)
                if key not in files:
                    files[key] = stack.enter_context(open_file(request.file, write=request.write, direct=self._direct))
                tasks.append(Task(memory=memory, file=files[key], offset=offset, write=request.write))
            stack.pop_all()  # the job closes them
            return _Job(tasks=tasks)

    # ---- carrying out ---------------------------------------------------------------------------------------------

    def _now(self, request: Request) -> int:
        with self._used():
            job = self._opened([request])
            begun_ns = time.monotonic_ns()
            try:
                self._transfers.carry_out(job.tasks)
            finally:
                job.close()
            self._count(job.tasks, time.monotonic_ns() - begun_ns)
        task = job.tasks[0]
        if task.error is not None:
            raise task.error
        return task.memory.size_bytes

    def _take_turn(self) -> None:
        """Carry out all that was asked for and not begun."""
        with self._changed:
            jobs, self._pending = self._pending, []
        tasks = [task for job in jobs for task in job.tasks]
        begun_ns = time.monotonic_ns()
        try:
            self._transfers.carry_out(tasks)
        except Exception as error:  # noqa: BLE001  # `wait` raises it
            for task in tasks:
                task.error = task.error or error
        finally:
            for job in jobs:
                job.close()
            self._count(tasks, time.monotonic_ns() - begun_ns)

    def _count(self, tasks: Sequence[Task], busy_ns: int) -> None:
        done = [task for task in tasks if task.error is None]
        read, written = ([task.memory.size_bytes for task in done if task.write is write] for write in (False, True))
        with self._changed:
            seen = self._figures
            self._figures = AioFigures(
                reads=seen.reads + len(read),
                writes=seen.writes + len(written),
                read_bytes=seen.read_bytes + sum(read),
                written_bytes=seen.written_bytes + sum(written),
                failed=seen.failed + len(tasks) - len(done),
                busy_ns=seen.busy_ns + busy_ns,
            )


def _checked_offset(offset: SupportsIndex, size_bytes: int) -> int:
    most = _MOST_BYTES - size_bytes
    try:
        found = index(offset)
    except TypeError:
        found = -1
    if not 0 <= found <= most:
        raise ConfigError(f"offset must be in [0, {most}], got {offset!r}")
    return found


def _checked_depth(queue_depth: SupportsIndex) -> int:
    try:
        found = index(queue_depth)
    except TypeError:
        found = 0
    if not 0 < found <= _MOST_DEPTH:
        raise ConfigError(f"queue_depth must be a whole number in [1, {_MOST_DEPTH}], got {queue_depth!r}")
    return found
