"""Carrying out requests whose files are open: cut, bounced where need be, given to the disk, checked."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from emlio.aio.blocks import Blocks, Wanted, cut
from emlio.aio.memory import DeviceMemory, HostMemory, memory_of
from emlio.aio.opened_file import OpenedFile
from emlio.native.disk import Batch, DiskQueue, TransferError, copy_each
from emlio.reading.buffers import BufferPool

__all__ = ["Task", "Transfers"]


@dataclass(slots=True, kw_only=True)
class Task:
    """A request whose file is open. `error` is set if it failed."""

    memory: HostMemory | DeviceMemory
    file: OpenedFile
    offset: int
    write: bool
    error: Exception | None = None

    def fail(self, error: OSError, begin: int = 0) -> None:
        """Keep the system's error, for the bytes of the file from `begin` on."""
        begin = max(self.offset, begin)
        left_bytes = self.offset + self.memory.size_bytes - begin
        self.error = self.file.failure(error.errno or 0, begin, left_bytes, write=self.write)
        self.error.__cause__ = error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stage:
    """Blocks at the disk, and the aligned memory of those that are bounced."""

    blocks: Blocks
    batch: Batch
    bounced: npt.NDArray[np.int64]
    write: bool

    def finish(self, queue: DiskQueue) -> None:
        """Wait, and copy what was read; raise an error with the first byte of the block that failed as its place."""
        try:
            queue.finish(self.batch)
        except TransferError as error:
            raise TransferError(error.errno or 0, int(self.blocks.starts[error.place])) from error
        if len(self.bounced) and not self.write:
            copy_each(self.bounced, *self.blocks.to_copy)


class Transfers:
    """The transfers of requests. For several threads at once; the queue is the caller's."""

    def __init__(self, queue: DiskQueue, block_bytes: int, queue_depth: int) -> None:
        """Transfer blocks of at most this size."""
        self._queue = queue
        self._block_bytes = block_bytes
        # A half is filled by the disk while the other is copied.
        self._bounce_bytes = max(block_bytes * queue_depth // 2, block_bytes)
        self._pool = BufferPool(self._bounce_bytes, 2 * self._bounce_bytes, aligned=True)

    def carry_out(self, tasks: Sequence[Task]) -> None:
        """Read and write; return when all are done, and those that failed have their errors."""
        for write in (False, True):
            self._try([task for task in tasks if task.write is write and isinstance(task.memory, HostMemory)])
        for task in tasks:
            if isinstance(task.memory, DeviceMemory):
                self._by_host(task, task.memory)

    def _try(self, tasks: Sequence[Task]) -> None:
        """Transfer; after an error each half alone, so that only requests that cannot be carried out fail."""
        if not tasks:
            return
        try:
            self._transfer(tasks)
        except OSError as error:
            if error.errno is None:  # not the system's: a signal handler raised it
                raise
            if len(tasks) > 1:
                self._try(tasks[: len(tasks) // 2])
                self._try(tasks[len(tasks) // 2 :])
            else:
                tasks[0].fail(error, error.place if isinstance(error, TransferError) else 0)

    def _by_host(self, task: Task, memory: DeviceMemory) -> None:
        """Transfer by way of memory of the host, part by part."""
        host = memory.host_tensor(min(self._bounce_bytes, memory.size_bytes))
        for begin in range(0, memory.size_bytes, self._bounce_bytes):
            there = memory.flat[begin : begin + self._bounce_bytes]
            here = host[: len(there)]
            if task.write:
                here.copy_(there)
            part = replace(task, memory=memory_of(here, written=True), offset=task.offset + begin)
            self._try([part])
            task.error = part.error
            if task.error is not None:
                return
            if not task.write:
                there.copy_(here)

    def _transfer(self, tasks: Sequence[Task]) -> None:
        """Read or write on the host. The kernel is done with the memory when this returns or raises."""
        write = tasks[0].write
        wanted = _wanted(tasks)
        if write:
            _allocate(tasks, wanted)
        blocks = cut(wanted, self._block_bytes, writes=write).in_turns()
        begun: list[_Stage] = []
        try:
            for stage in blocks.stages(self._bounce_bytes):
                begun.append(self._begin(stage, write=write))
                if len(begun) > 1:
                    begun[0].finish(self._queue)
                    del begun[0]
            if begun:
                begun[0].finish(self._queue)
                del begun[0]
        finally:
            for left in begun:
                with suppress(OSError, ValueError):  # an earlier one is being raised, whose stage may be finished
                    left.finish(self._queue)

    def _begin(self, blocks: Blocks, *, write: bool) -> _Stage:
        sizes = blocks.bounced_sizes
        memory = self._pool.take(int(sizes.sum()), lambda _: None)
        address = memory.ctypes.data
        places = address + np.cumsum(sizes) - sizes
        addresses = np.where(blocks.copied > 0, places, blocks.addresses)
        bounced = (places + blocks.skips)[blocks.copied > 0]
        if write and len(bounced):
            sources, copied = blocks.to_copy
            copy_each(sources, bounced, copied)
        columns = (blocks.descriptors, blocks.starts, blocks.sizes, blocks.needed, addresses - address)
        descriptors, starts, sizes, needed, at = (np.ascontiguousarray(each, np.int64) for each in columns)
        batch = self._queue.begin(descriptors, starts, sizes, needed, at, memory, writes=write)
        return _Stage(blocks=blocks, batch=batch, bounced=bounced, write=write)


def _wanted(tasks: Sequence[Task]) -> Wanted:
    rows = [
        (task.file.plain, task.file.direct, task.offset, task.memory.size_bytes, task.memory.address)
        for task in tasks
        if isinstance(task.memory, HostMemory)
    ]
    plain, direct, starts, sizes, addresses = np.array(rows, np.int64).T.copy()
    return Wanted(plain=plain, direct=direct, starts=starts, sizes=sizes, addresses=addresses)


def _allocate(tasks: Sequence[Task], wanted: Wanted) -> None:
    """Make room in the files for what is written beyond their ends, each stretch of adjacent writes at once."""
    files = {task.file.plain: task.file for task in tasks}
    numbers, of = np.unique(wanted.plain, return_inverse=True)
    sizes = np.array([files[number].size() for number in numbers.tolist()], np.int64)[of]
    starts, ends = np.maximum(wanted.starts, sizes), wanted.starts + wanted.sizes
    order = np.lexsort((starts, of))
    order = order[ends[order] > starts[order]]
    apart = np.flatnonzero((of[order][1:] != of[order][:-1]) | (starts[order][1:] != ends[order][:-1])) + 1
    for part in np.split(order, apart) if len(order) else ():
        first, last = int(part[0]), int(part[-1])
        tasks[first].file.allocate(int(starts[first]), int(ends[last]))
