"""Reading many scattered ranges of shards into one buffer, in as few system calls as it takes.

Long runs are read with pread. Many short ones are gathered by process_vm_readv from this process's own mappings of the files:
one call moves a thousand records without the interpreter's lock. Both report a file that has become shorter as a short count,
where touching a mapping would end the process with SIGBUS (docs/adr/0004-reading.md has the measurements).

Covers: the system calls. Does not cover: which ranges (emlio.reading.course), files that changed (emlio.reading.files).
"""

import ctypes
import errno
import itertools
import os
import resource
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from emlio.reading.files import OpenShards

__all__ = ["Gatherer", "ShortReadError", "run_starts"]

_LONG_RUN_BYTES = 64 << 10
"""From this mean length of a run on, one pread a run costs less than pinning its pages one by one, which also have to be mapped
when they are first met. Below, every pread would give the interpreter's lock away and wait to get it back."""

_IOV_MAX = 1024

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
    """The file gave fewer bytes than the range has; `position` is the first range that came short."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class Gatherer:
    """Reads for one thread.

    Attributes:
        cold: whether the last read waited for a disk: then asking ahead pays, on a warm cache it only costs.
    """

    def __init__(self, vm_readv: Callable[..., int] = _process_vm_readv) -> None:
        """See the class.

        Args:
            vm_readv: the system call of that name; answers -1 with an errno where it is forbidden.
        """
        self.cold = True
        self._waits = -1
        self._vm_readv = vm_readv
        self._may_gather = True

    def read(
        self,
        shards: OpenShards,
        shard: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        out: npt.NDArray[np.uint8],
    ) -> None:
        """Fill `out` with the ranges one after the other.

        Args:
            shards: the files.
            shard: (n,) which file each range lies in.
            starts: (n,) byte offset of each range.
            sizes: (n,) its length; their sum is the length of `out`.
            out: where to.
        """
        filled = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=filled[1:])
        first = run_starts(shard, starts, sizes)
        if not self._may_gather or out.nbytes >= len(first) * _LONG_RUN_BYTES:
            _read_runs(shards, shard, starts, filled, first, out, 0, len(first))
        else:
            self._gather(shards, shard, starts, filled, first, out)
        self.look_at_disk()

    def _gather(
        self,
        shards: OpenShards,
        shard: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int64],
        filled: npt.NDArray[np.int64],
        first: npt.NDArray[np.int64],
        out: npt.NDArray[np.uint8],
    ) -> None:
        for begin in range(0, len(first), _IOV_MAX):
            part = first[begin : begin + _IOV_MAX]
            held = shards.mapped(shard[part]) if self._may_gather else None
            if held is None:
                _read_runs(shards, shard, starts, filled, first, out, begin, begin + len(part))
                continue
            with held as addresses:
                self._gather_part(addresses, starts, filled, first, out, begin)
            if not self._may_gather:
                # A container may forbid the call; reading run by run is slower and always allowed.
                _read_runs(shards, shard, starts, filled, first, out, begin, begin + len(part))

    def _gather_part(
        self,
        addresses: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int64],
        filled: npt.NDArray[np.int64],
        first: npt.NDArray[np.int64],
        out: npt.NDArray[np.uint8],
        begin: int,
    ) -> None:
        """As many runs as there are addresses, from run `begin` on, in one call; notes where that is forbidden."""
        end = begin + len(addresses)
        bounds = np.empty(len(addresses) + 1, np.int64)
        bounds[:-1] = filled[first[begin:end]]
        bounds[-1] = filled[first[end]] if end < len(first) else filled[-1]
        runs = np.empty((len(addresses), 2), np.uint64)  # struct iovec[len(addresses)]
        runs[:, 0] = addresses + starts[first[begin:end]]
        runs[:, 1] = bounds[1:] - bounds[:-1]
        at, upto = int(bounds[0]), int(bounds[-1])
        into = np.array([out.ctypes.data + at, upto - at], np.uint64)
        got = self._vm_readv(os.getpid(), into.ctypes.data, 1, runs.ctypes.data, len(runs), 0)
        if got == upto - at:
            return
        if got < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
            self._may_gather = False
            return
        raise ShortReadError(int(np.searchsorted(filled, at + max(got, 0), side="right")) - 1)

    def look_at_disk(self) -> None:
        """Note whether this thread has waited for a disk since the last look."""
        waits = _disk_waits()
        self.cold, self._waits = waits != self._waits, waits

    def advise(
        self,
        shards: OpenShards,
        shard: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> None:
        """Ask the kernel to read these ranges soon, and do not wait."""
        first = run_starts(shard, starts, sizes)
        last = np.append(first[1:], len(starts)) - 1
        ends = starts[last] + sizes[last]
        runs: list[int] = first.tolist()
        for index, run in enumerate(runs):
            begin = int(starts[run])
            with shards.open(int(shard[run])) as descriptor:
                os.posix_fadvise(descriptor, begin, int(ends[index]) - begin, os.POSIX_FADV_WILLNEED)


def run_starts(
    shard: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The positions of the ranges that do not go on where the one before ended."""
    breaks = np.empty(len(starts), np.bool_)
    breaks[0] = True
    np.not_equal(starts[1:], starts[:-1] + sizes[:-1], out=breaks[1:])
    breaks[1:] |= shard[1:] != shard[:-1]
    return breaks.nonzero()[0]


def _read_runs(
    shards: OpenShards,
    shard: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    filled: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint8],
    run: int,
    upto_run: int,
) -> None:
    """The runs [run, upto_run)."""
    edges: list[int] = [*first[run : upto_run + 1].tolist(), len(starts)]
    for begin, end in itertools.islice(itertools.pairwise(edges), upto_run - run):
        offset, at, upto = int(starts[begin]), int(filled[begin]), int(filled[end])
        with shards.open(int(shard[begin])) as descriptor:
            while at < upto:
                got = os.preadv(descriptor, [out[at:upto].data], offset)
                if got == 0:
                    raise ShortReadError(int(np.searchsorted(filled, at, side="right")) - 1)
                at, offset = at + got, offset + got


def _disk_waits() -> int:
    """How often this thread has waited for a disk."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_majflt + usage.ru_inblock
