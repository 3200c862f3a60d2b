"""The server of a FUSE file system in the C library: requests of the kernel, reads that wait, bytes pushed ahead of readers.

Nothing here mounts, starts threads or knows where bytes come from.
"""

import errno
import os
import stat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from emlio.native.library import guard_library, library_for, why_not
from emlio.store.tree import Tree

__all__ = ["MOST_MISSES", "Counts", "FuseSession", "Miss"]

_Ints = npt.NDArray[np.int64]
_FORMAT: Final = 0o170000

MOST_MISSES: Final = 1024
"""Misses that one call tells at most."""


class Miss(NamedTuple):
    """A read whose bytes are not here; or the news that a tripwire was read, if `unique` is 0.

    Attributes:
        unique: the number of the request.
        inode: of the file.
        offset: the first byte.
        size: how many bytes, all inside the file.
        thread: of the reader, as `gettid` has it; a thread of the kernel, if it reads ahead.
    """

    unique: int
    inode: int
    offset: int
    size: int
    thread: int


class Counts(NamedTuple):
    """The counts of a session: requests, reads answered at once and told as missed, what was pushed and dropped.

    Attributes:
        requests: of the kernel, of all kinds.
        answered: reads that were answered with bytes that were here.
        missed: reads that were told.
        stored: pushes into the page cache.
        stored_bytes: their bytes.
        unknown: pushes of files that the kernel had forgotten.
        dropped: files whose pages were freed.
        forgotten: those that the kernel has forgotten on demand.
        late: reads that got an error because their bytes did not come, or because their thread died.
        refused: answers of a wrong size.
        aborted: whether the watch ended the connection.
    """

    requests: int
    answered: int
    missed: int
    stored: int
    stored_bytes: int
    unknown: int
    dropped: int
    forgotten: int
    late: int
    refused: int
    aborted: int


class FuseSession:
    """One mounted tree. Threads may share it; `free` is called once, after all of them.

    Calls that may wait let the interpreter's lock go.
    """

    def __init__(self, tree: Tree, device: int, *, uid: int, gid: int, limit_ms: int) -> None:
        """See the class.

        Args:
            tree: the entries; the inode of each is its number + 1.
            device: the descriptor that requests are read from; stays open until `free`.
            uid: the owner of all entries.
            gid: their group.
            limit_ms: how long a read waits for its bytes.

        Raises:
            OSError: the C library is not used; EINVAL, EEXIST: there can be no such tree.
        """
        library = guard_library()
        kept = library_for(0)
        if library is None or kept is None:
            raise OSError(errno.ENOSYS, f"the C library is needed: {why_not()}")
        self._library, self._kept = library, kept
        count = len(tree)
        targets = np.where(tree.modes & _FORMAT == stat.S_IFLNK, tree.sizes, 0)
        columns = (
            (tree.parents(), np.int32),
            (tree.names.text, np.uint8),
            (tree.names.bounds, np.int64),
            (tree.modes, np.uint32),
            (tree.sizes, np.int64),
            (tree.mtimes_ns, np.int64),
            (tree.targets, np.uint8),
            (np.concatenate(([0], np.cumsum(targets))), np.int64),
        )
        self._arrays = [np.ascontiguousarray(column, kind) for column, kind in columns]
        table = np.array([count, *(column.ctypes.data for column in self._arrays)], np.int64)
        error = np.zeros(1, np.int32)
        made = library.emlio_fuse_open(table.ctypes.data, device, uid, gid, limit_ms, error.ctypes.data)
        if not made:
            raise OSError(int(error[0]), f"the tree cannot be mounted: {os.strerror(int(error[0]))}")
        self._session: int | None = made
        self._counted = np.zeros(len(Counts._fields), np.int64)

    def mounted(self, directory: bytes, device: int) -> None:
        """Tell where it is mounted, and the device number there, before it is served."""
        if self._library.emlio_fuse_mounted(self._session, directory, device):
            raise MemoryError

    def serve(self) -> int:
        """Serve requests until the file system is gone; return the system's error that told so."""
        return int(self._library.emlio_fuse_serve(self._session))

    def watch(self) -> None:
        """Answer reads that wait too long with errors, and end a connection that is stuck, until `stop`."""
        self._library.emlio_fuse_watch(self._session)

    def wait(self, timeout_ms: int) -> list[Miss] | None:
        """Return reads that missed, and tripwires that were read; None once stopped, nothing after the time."""
        rows = np.empty((MOST_MISSES, len(Miss._fields)), np.int64)
        count = int(self._library.emlio_fuse_wait(self._session, rows.ctypes.data, len(rows), timeout_ms))
        return None if count < 0 else [Miss(*row) for row in rows[:count].tolist()]

    def answer(
        self,
        uniques: _Ints,
        inodes: _Ints,
        memory: npt.NDArray[np.uint8],
        starts: _Ints,
        sizes: _Ints,
        errors: npt.NDArray[np.int32],
    ) -> npt.NDArray[np.int32]:
        """Answer reads with bytes, or with errors of the system.

        Args:
            uniques: (n,) the numbers of the requests.
            inodes: (n,) of their files.
            memory: holds the bytes; free again after the call.
            starts: (n,) where those of each begin.
            sizes: (n,) and how many they are.
            errors: (n,) 0 for bytes.

        Returns:
            (n,) 0; ENOENT if it did not wait any more; EINVAL if the bytes were too few or too many, and it got EIO.
        """
        given = _checked(memory, starts, sizes, uniques, inodes)
        results = np.empty(len(uniques), np.int32)
        kept = np.ascontiguousarray(errors, np.int32)
        if len(kept) != len(results):
            raise ValueError("each read must have an error, or 0")
        table = np.array(
            [*(given[place].ctypes.data for place in (2, 3, 0, 1)), kept.ctypes.data, results.ctypes.data], np.int64
        )
        self._library.emlio_fuse_answer(self._session, len(results), *table.tolist())
        return results

    def push(
        self,
        memory: npt.NDArray[np.uint8],
        inodes: _Ints,
        offsets: _Ints,
        starts: _Ints,
        sizes: _Ints,
        withheld: _Ints,
    ) -> npt.NDArray[np.int32]:
        """Put bytes of files into the page cache, and answer the reads that wait for them.

        Args:
            memory: holds the bytes; free again after the call.
            inodes: (n,) of the files.
            offsets: (n,) the first byte of each in the file, a multiple of the page's size.
            starts: (n,) and in the memory.
            sizes: (n,) whole pages, or up to the end of the file.
            withheld: (n,) how many at the beginning are only kept, and told as a tripwire when they are read.

        Returns:
            (n,) 0; ENOENT if the kernel does not know the file; EBUSY if a read waits for other bytes of these pages;
            EINVAL if these are not pages of the file.
        """
        given = _checked(memory, starts, sizes, inodes, offsets, withheld)
        results = np.empty(len(inodes), np.int32)
        table = np.array([*(given[place].ctypes.data for place in (2, 3, 0, 1, 4)), results.ctypes.data], np.int64)
        self._library.emlio_fuse_push(self._session, len(results), table.ctypes.data)
        return results

    def drop(self, inodes: _Ints, offsets: _Ints, size: int, forgotten: npt.NDArray[np.bool_] | None = None) -> None:
        """Free pages of files, and take their tripwires away.

        Args:
            inodes: (n,) of the files.
            offsets: (n,) the first byte of each.
            size: how many bytes from there on.
            forgotten: (n,) those that the kernel is to forget altogether, if they are not in use.
        """
        given = [np.ascontiguousarray(each, np.int64) for each in (inodes, offsets)]
        marks = np.zeros(len(inodes), np.uint8) if forgotten is None else np.ascontiguousarray(forgotten, np.uint8)
        if not len(given[0]) == len(given[1]) == len(marks) or size < 1:
            raise ValueError("each file must have an offset, and the size be at least 1")
        pointers = [*(each.ctypes.data for each in given), marks.ctypes.data]
        self._library.emlio_fuse_drop(self._session, len(marks), *pointers, size)

    def counts(self) -> Counts:
        """Return what was counted."""
        if self._session is not None:
            self._kept.emlio_fuse_counts(self._session, self._counted.ctypes.data)
        return Counts(*self._counted.tolist())

    def abort(self) -> bool:
        """End the connection: all that waits in the kernel fails. Return whether that could be done."""
        return bool(self._library.emlio_fuse_abort(self._session))

    def stop(self) -> None:
        """Fail the reads that wait, and end `wait` and `watch`."""
        self._library.emlio_fuse_stop(self._session)

    def free(self) -> None:
        """Give all memory back. No call may be under way."""
        self.counts()  # the last ones
        if self._session is not None:
            self._library.emlio_fuse_free(self._session)
        self._session = None


def _checked(memory: npt.NDArray[np.uint8], starts: _Ints, sizes: _Ints, *others: _Ints) -> list[_Ints]:
    """Return addresses, sizes and other columns as C takes them."""
    given = [np.ascontiguousarray(each, np.int64) for each in (starts, sizes, *others)]
    if any(len(each) != len(starts) for each in given) or not memory.flags.c_contiguous:
        raise ValueError("the memory must be contiguous, and each file have a place there")
    if len(starts) and (given[0].min() < 0 or given[1].min() < 0 or (given[0] + given[1]).max() > memory.nbytes):
        raise ValueError("bytes must lie in the memory")
    given[0] = given[0] + memory.ctypes.data
    return given
