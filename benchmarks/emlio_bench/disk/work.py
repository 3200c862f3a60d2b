"""The work of one sample, and its measurement by fio and by emlio.aio, each in a process of its own."""

import os
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.aio import AioHandle, Request, aligned
from emlio.errors import TransportError
from emlio.native.disk import Batch, DiskQueue
from emlio_bench.processes.child import say, start_worker

__all__ = ["OURS", "PATTERNS", "Sample", "Work", "block_text", "fio_engines", "fio_memory", "measure", "transfer"]

PATTERNS: Final = ("random-read", "read", "write", "random-write")
OURS: Final = "emlio"
_FIO_ENGINES: Final = ("libaio", "io_uring")
_FIO_PATTERNS: Final = {"random-read": "randread", "random-write": "randwrite"}
_GROUP_BYTES: Final = 256 << 20
"""Requests of so many bytes begin in one call."""
_SLAB_BYTES: Final = 4 << 20
_SLABS: Final = 3
"""Slabs that are filled, or given back, while the others are at the disk."""
_HUGE_REST: Final = 8 << 20
"""Huge pages that fio needs beside its blocks', at most."""
_WITHIN_S: Final = 300.0


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one sample.

    Attributes:
        file: the file; `write` makes it anew, the other patterns find it.
        size_bytes: bytes of the file, each of which is transferred once.
        pattern: one of `PATTERNS`.
        block_bytes: bytes of a block.
        depth: blocks at the disk at once.
        busy: whether a Python thread computes meanwhile.
        slabs: whether it reads into slabs of messages, as the daemon does, instead of requests by emlio.aio.
    """

    file: str
    size_bytes: int
    pattern: str
    block_bytes: int
    depth: int
    busy: bool = False
    slabs: bool = False

    @property
    def name(self) -> str:
        """Name of the scenario in results."""
        return f"{self.pattern}, {block_text(self.block_bytes)}, depth {self.depth}"

    @property
    def writes(self) -> bool:
        """True if it writes."""
        return self.pattern.endswith("write")


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes and times of one sample; processor time is without that of a busy thread."""

    size_bytes: int
    elapsed_ns: int
    cpu_ns: int


def block_text(size_bytes: int) -> str:
    """Return the size of a block, a multiple of 1024, for people."""
    return f"{size_bytes >> 20} MiB" if size_bytes % (1 << 20) == 0 else f"{size_bytes >> 10} KiB"


def fio_engines() -> tuple[str, ...]:
    """Return the subjects that are fio with one of its engines; none where it is not installed."""
    return tuple(f"fio-{engine}" for engine in _FIO_ENGINES) if shutil.which("fio") else ()


def measure(subject: str, work: Work) -> Sample:
    """Take one sample.

    Raises:
        TransportError: the process failed.
    """
    if work.pattern == "write":
        Path(work.file).unlink(missing_ok=True)
    if subject.startswith("fio-"):
        return _fio(subject.removeprefix("fio-"), work)
    with start_worker("disk-transfer", work) as process:
        sample = process.hear(Sample, _WITHIN_S)
        process.rest(_WITHIN_S)
    return sample


def _fio(engine: str, work: Work) -> Sample:
    options = {
        "name": "disk",
        "filename": work.file,
        "rw": _FIO_PATTERNS.get(work.pattern, work.pattern),
        "bs": work.block_bytes,
        "iodepth": work.depth,
        "ioengine": engine,
        "direct": 1,
        "size": work.size_bytes,
        "fallocate": "native",
        "output-format": "json",
        "iomem": fio_memory(work),
    }
    command = ["fio", *(f"--{name}={value}" for name, value in options.items())]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=_WITHIN_S)
    try:
        job = msgspec.json.decode(done.stdout)["jobs"][0]
        side = job["write" if work.writes else "read"]
        cpu_ns = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] * 1e6
        sample = Sample(size_bytes=side["io_bytes"], elapsed_ns=int(side["runtime"] * 1e6), cpu_ns=int(cpu_ns))
    except (msgspec.DecodeError, LookupError, TypeError) as error:
        raise TransportError(
            f"fio must report as JSON, it said {done.stderr[:500].decode(errors='replace')}"
        ) from error
    if done.returncode or job["error"] or not sample.elapsed_ns:
        raise TransportError(f"fio failed: {done.stderr[:500].decode(errors='replace') or job['error']}")
    return sample


def fio_memory(work: Work) -> str:
    """Return the kind of memory in which fio's blocks lie: of huge pages, if enough are reserved (vm.nr_hugepages).

    Ours asks for huge pages by advice, which fio cannot. On memory of small pages a block is so many pieces for the disk that
    some disks give half the rate.
    """
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    free = int(fields.get("HugePages_Free", "0")) * int(fields.get("Hugepagesize", "0 kB").split()[0]) << 10
    return "mmaphuge" if free >= work.depth * work.block_bytes + _HUGE_REST else "mmap"


@dataclass(slots=True)
class _Busy:
    """A thread that computes in Python until it is stopped. `cpu_ns` is its processor time."""

    stopped: bool = False
    cpu_ns: int = 0

    def run(self) -> None:
        """Compute; the program of the thread."""
        number = 0
        while not self.stopped:
            number += 1
            self.cpu_ns = time.thread_time_ns() if number % 1000 == 0 else self.cpu_ns


def transfer(orders: bytes) -> None:
    """Transfer in one of our ways; the program of its process."""
    work = msgspec.json.decode(orders, type=Work)
    blocks = np.arange(-(-work.size_bytes // work.block_bytes)) * work.block_bytes
    if work.pattern.startswith("random"):
        blocks = np.random.default_rng(0).permutation(blocks)
    busy = _Busy()
    thread = threading.Thread(target=busy.run)
    if work.busy:
        thread.start()
    try:
        with _by_slabs(work, blocks) if work.slabs else _by_requests(work, blocks) as run:
            begun_ns, cpu_ns, busy_ns = time.monotonic_ns(), time.process_time_ns(), busy.cpu_ns
            run()
            elapsed_ns = time.monotonic_ns() - begun_ns
            spent_ns = time.process_time_ns() - cpu_ns - (busy.cpu_ns - busy_ns)
    finally:
        busy.stopped = True
        if work.busy:
            thread.join()
    say(Sample(size_bytes=work.size_bytes, elapsed_ns=elapsed_ns, cpu_ns=spent_ns))


@contextmanager
def _by_requests(work: Work, blocks: npt.NDArray[np.int64]) -> Generator[Callable[[], None]]:
    """Give what transfers all blocks by emlio.aio."""
    memory = aligned(max(min(_GROUP_BYTES, work.size_bytes) // work.block_bytes, 1) * work.block_bytes)
    np.copyto(memory.view(np.uint64), np.random.default_rng(0).integers(0, 1 << 64, len(memory) // 8, np.uint64))
    group = len(memory) // work.block_bytes
    parts = [memory[at : at + work.block_bytes] for at in range(0, len(memory), work.block_bytes)]
    with AioHandle(work.block_bytes, work.depth) as handle:

        def run() -> None:
            for first in range(0, len(blocks), group):
                handle.submit(
                    Request(
                        buffer=part[: min(work.block_bytes, work.size_bytes - at)],
                        file=work.file,
                        offset=at,
                        write=work.writes,
                    )
                    for part, at in zip(parts, blocks[first : first + group].tolist(), strict=False)
                )
                handle.wait()

        yield run


@contextmanager
def _by_slabs(work: Work, blocks: npt.NDArray[np.int64]) -> Generator[Callable[[], None]]:
    """Give what reads all blocks into slabs, one call for the blocks of each."""
    each = max(_SLAB_BYTES // work.block_bytes, 1)
    slabs = [aligned(each * work.block_bytes) for _ in range(_SLABS + -(-work.depth // each))]
    for slab in slabs:
        slab.fill(1)
    descriptor, queue = os.open(work.file, os.O_RDONLY | os.O_DIRECT), DiskQueue(work.depth)

    def run() -> None:
        free, begun = list(slabs), deque[tuple[Batch, npt.NDArray[np.uint8]]]()
        for first in range(0, len(blocks), each):
            if not free:
                batch, slab = begun.popleft()
                queue.finish(batch)
                free.append(slab)
            starts, slab = blocks[first : first + each], free.pop()
            needed = np.minimum(work.block_bytes, work.size_bytes - starts)
            sizes, files = np.full(len(starts), work.block_bytes), np.full(len(starts), descriptor)
            begun.append(
                (queue.begin(files, starts, sizes, needed, np.arange(len(starts)) * work.block_bytes, slab), slab)
            )
        for batch, _ in begun:
            queue.finish(batch)

    try:
        yield run
    finally:
        queue.close()
        os.close(descriptor)
