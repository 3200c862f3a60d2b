"""Reading many scattered ranges of files into one buffer with few system calls.

Short runs are copied from this process's own mappings of the files, and long ones, too, once all of the files were
read without a wait for a disk. A process of ours, such as a daemon, does that in C under a guard: touching a mapping
behind the end of its file would otherwise end the process with SIGBUS. Elsewhere process_vm_readv moves a thousand
short runs with one call. The other long runs are read with pread. All of them report a file that has become shorter as
a short read, but of bytes up to the end of the file's last page, which come as zeros from a mapping: `check_read` finds that,
or their checksum (docs/internals/decisions/reading.md has the measurements).
"""

import ctypes
import errno
import os
import resource
from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt

from emlio import native
from emlio.errors import DatasetError, EmlioError
from emlio.open_limits import is_used_up
from emlio.reading.ranges import RangeRead, run_starts
from emlio.store.opened.open_files import OpenFiles

__all__ = ["Gatherer", "ShortReadError"]

_LONG_RUN_BYTES = 64 << 10
"""The mean length of runs from which on one pread per run is cheaper than process_vm_readv, which pins pages one by one,
and than the first touch of each page of a mapping. Below, every pread would release the interpreter's lock and wait to
get it back."""

_IOV_MAX = 1024
_AT_ONCE = 64
"""Files that one thread uses at a time; this may exceed the limit of open files where that is
low."""

_libc = ctypes.CDLL(None, use_errno=True)
_process_vm_readv = _libc.process_vm_readv
_process_vm_readv.restype = ctypes.c_ssize_t
_process_vm_readv.argtypes = [
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_ulong,
    ctypes.c_void_p,
    ctypes.c_ulong,
    ctypes.c_ulong,
]


class ShortReadError(Exception):
    """The file gave fewer bytes than a range has; `position` is the first incomplete range."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class _ShortAtError(Exception):
    """The file gave fewer bytes than a run has; `at` is where the destination lacks them."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class _Runs(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Ranges, joined where one continues the one before; shapes (n,) for n runs.

    Attributes:
        file: of each run.
        starts: its byte offset in the file.
        at: the offset of its first byte in the destination.
        upto: the offset after its last byte in the destination.
    """

    file: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    at: npt.NDArray[np.int64]
    upto: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.file)

    def part(self, which: "slice | npt.NDArray[np.bool_]") -> "_Runs":
        """Return a part of the runs."""
        return _Runs(file=self.file[which], starts=self.starts[which], at=self.at[which], upto=self.upto[which])


class Gatherer:
    """Reads for one thread.

    Attributes:
        cold: whether the last read waited for a disk. Then requests ahead pay; on a warm cache they
            only cost.
    """

    def __init__(self, vm_readv: Callable[..., int] = _process_vm_readv) -> None:
        """See the class.

        Args:
            vm_readv: the system call of that name; returns -1 with an errno if it is forbidden.
        """
        self.cold = True
        self._waits = -1
        self._vm_readv = vm_readv
        self._may_gather = True

    def read(self, files: OpenFiles, wanted: RangeRead, out: npt.NDArray[np.uint8]) -> None:
        """Fill `out` with ranges one after the other."""
        file, starts, sizes = wanted.file, wanted.starts, wanted.sizes
        filled = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=filled[1:])
        first = run_starts(file, starts, sizes)
        bounds = np.append(filled[first], filled[-1])
        runs = _Runs(file=file[first], starts=starts[first], at=bounds[:-1], upto=bounds[1:])
        try:
            guarded = native.is_guarded()
            long_runs = out.nbytes >= len(first) * _LONG_RUN_BYTES
            # A file that is read whole, once in an epoch, is not worth a mapping.
            if not self._may_gather or files.read_whole or (long_runs and not (guarded and files.are_warm)):
                _read_runs(files, runs, out)
            else:
                at_once = len(first) if guarded else _IOV_MAX
                for begin in range(0, len(first), at_once):
                    self._gather(files, runs.part(slice(begin, begin + at_once)), out, guarded=guarded)
        except _ShortAtError as short:
            raise ShortReadError(int(np.searchsorted(filled, short.at, side="right")) - 1) from None
        first_look = self._waits < 0
        self.look_at_disk()
        if long_runs:
            files.note_read(out.nbytes, waited=self.cold and not first_look)

    def _gather(self, files: OpenFiles, runs: "_Runs", out: npt.NDArray[np.uint8], *, guarded: bool) -> None:
        """Read runs, at most _IOV_MAX without a guard: those in mapped files at once, the others one by one."""
        # A container may forbid the call; reading run by run is slower and always allowed.
        left = self._gather_some(files, runs, out, guarded=guarded) if self._may_gather else runs
        if len(left):
            _read_runs(files, left, out)

    def _gather_some(self, files: OpenFiles, runs: "_Runs", out: npt.NDArray[np.uint8], *, guarded: bool) -> "_Runs":
        """Read runs that lie in mapped files; return those that were not read."""
        in_mapped = partial(_copy_mapped, files) if guarded else self._gather_mapped
        try:
            held = files.mapped(runs.file)
        except EmlioError:  # this file system has no mappings, or memory is short; whatever else it is, reading tells
            files.note_read(0, waited=True)
            return runs
        left = runs
        with held as addresses:
            there = addresses >= 0
            if there.all():
                left = in_mapped(addresses, runs, out)
            elif there.any():
                unread = in_mapped(addresses[there], runs.part(there), out)
                left = runs if len(unread) else runs.part(~there)
        return left

    def _gather_mapped(self, addresses: npt.NDArray[np.int64], runs: "_Runs", out: npt.NDArray[np.uint8]) -> "_Runs":
        """Read runs from mappings in one call; return the runs that were not read.

        These are none, or all if the call is forbidden.
        """
        lengths = runs.upto - runs.at
        total = int(lengths.sum())
        whence = np.empty((len(runs), 2), np.uint64)  # struct iovec[len(runs)]
        whence[:, 0] = addresses + runs.starts
        whence[:, 1] = lengths
        if total == int(runs.upto[-1] - runs.at[0]):
            into = np.array([[out.ctypes.data + int(runs.at[0]), total]], np.uint64)
        else:
            into = np.empty((len(runs), 2), np.uint64)
            into[:, 0] = out.ctypes.data + runs.at
            into[:, 1] = lengths
        got = self._vm_readv(os.getpid(), into.ctypes.data, len(into), whence.ctypes.data, len(whence), 0)
        if got == total:
            return runs.part(slice(0))
        if got < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
            self._may_gather = False
            return runs
        got = max(got, 0)
        ends = np.cumsum(lengths)
        run = int(np.searchsorted(ends, got, side="right"))
        raise _ShortAtError(int(runs.upto[run]) - (int(ends[run]) - got))

    def look_at_disk(self) -> None:
        """Note whether this thread has waited for a disk since the last call."""
        waits = _disk_waits()
        self.cold, self._waits = waits != self._waits, waits

    def advise(self, files: OpenFiles, wanted: RangeRead) -> None:
        """Ask the kernel to read these ranges soon, without waiting."""
        file, starts, sizes = wanted.file, wanted.starts, wanted.sizes
        first = run_starts(file, starts, sizes)
        last = np.append(first[1:], len(starts)) - 1
        ends = starts[last] + sizes[last]
        for begin in range(0, len(first), _AT_ONCE):
            some = first[begin : begin + _AT_ONCE]
            lengths = ends[begin : begin + _AT_ONCE] - starts[some]
            try:
                held = files.open_all(file[some])
            except EmlioError:
                return  # reading raises the error, after the messages before it
            with held as descriptors:
                for descriptor, offset, length in zip(
                    descriptors.tolist(), starts[some].tolist(), lengths.tolist(), strict=True
                ):
                    os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_WILLNEED)


def _copy_mapped(files: OpenFiles, addresses: npt.NDArray[np.int64], runs: _Runs, out: npt.NDArray[np.uint8]) -> _Runs:
    """Copy runs from mappings under the guard; return the runs that were not copied.

    These are none, all if the guard is gone, or those from the first on that cannot be read: a system call says why.
    """
    lengths = files.store.sizes[runs.file]
    copied = native.gather(addresses, lengths, runs.starts, runs.upto - runs.at, runs.at, out)
    return runs if copied is None else runs.part(slice(copied, None))


def _read_runs(files: OpenFiles, runs: _Runs, out: npt.NDArray[np.uint8]) -> None:
    """Read with one system call for each run, from files that are opened some at a time."""
    begin, at_once = 0, _AT_ONCE
    while begin < len(runs):
        part = runs.part(slice(begin, begin + at_once))
        try:
            held = files.open_all(part.file)
        except DatasetError as error:
            if not error.passing or at_once == 1:
                raise
            at_once //= 2  # the files in use cannot be closed in favour of the others
            continue
        with held as descriptors:
            done = native.read_files(descriptors, part.starts, part.upto - part.at, part.at, out)
            left = part.part(slice(done, None))
            for descriptor, file, start, first, upto in zip(
                descriptors[done:].tolist(),
                left.file.tolist(),
                left.starts.tolist(),
                left.at.tolist(),
                left.upto.tolist(),
                strict=True,
            ):
                at, offset = first, start
                while at < upto:
                    try:
                        got = os.preadv(descriptor, [out[at:upto].data], offset)
                    except OSError as error:
                        raise DatasetError(
                            f"{files.store.path(file)}: reading at offset {offset} failed: {error.strerror or error}",
                            passing=is_used_up(error),
                        ) from error
                    if got == 0:
                        raise _ShortAtError(at)
                    at, offset = at + got, offset + got
        begin += at_once


def _disk_waits() -> int:
    """Return how often this thread has waited for a disk."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_majflt + usage.ru_inblock
