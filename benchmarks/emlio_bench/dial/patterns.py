"""Patterns of requests: those of DIAL's tables, and the simple ones that its models are trained on.

The kernels of h5bench are written anew after its documentation and the sizes of its sample configurations: one process, eight
variables of 4 bytes for each particle, each an array that is written or read in one call, one after the other in the file. An
HDF5 file's own metadata is left out.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Final

import numpy as np

from emlio.aio import AioHandle, Request, aligned
from emlio.errors import ConfigError
from emlio_bench.dlio.workloads import WORKLOADS

__all__ = ["KERNELS", "PATTERNS", "Pattern", "fill", "random_pattern", "run_pattern"]

_MIB: Final = 1 << 20
_KIB: Final = 1 << 10
_MOST_CALL_BYTES: Final = 64 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Calls with requests of one size, over and over through a file.

    Attributes:
        name: short name.
        write: whether they write.
        request_bytes: size of a request.
        requests: requests of a call, which returns when all are complete.
        stride_bytes: from the begin of a request to that of the next one in the file; 0 for the size of a request.
        random: whether the requests come in random order.
        printed: what DIAL prints in MB/s: its optimum, and itself; None where it prints no number.
    """

    name: str
    write: bool
    request_bytes: int
    requests: int = 1
    stride_bytes: int = 0
    random: bool = False
    printed: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if min(self.request_bytes, self.requests) < 1 or 0 < self.stride_bytes < self.request_bytes:
            raise ConfigError(f"a pattern must have requests that do not overlap, got {self}")

    @property
    def call_bytes(self) -> int:
        """Bytes of a call."""
        return self.request_bytes * self.requests

    @property
    def group(self) -> str:
        """The environment that it is for a model."""
        order = "random" if self.random else "in order"
        return (
            f"{'writes' if self.write else 'reads'} of {self.request_bytes >> 10} KiB, {order}, {self.requests} a call"
        )

    def calls(self, size_bytes: int) -> Iterator[list[int]]:
        """Yield the places of each call's requests in a file of this size, without end."""
        stride = self.stride_bytes or self.request_bytes
        places = np.arange(size_bytes // stride) * stride
        if len(places) < self.requests:
            raise ConfigError(f"a file for {self.name!r} must have room for a call, has {size_bytes:,} bytes")
        if self.random:
            places = np.random.default_rng(0).permutation(places)
        rows = places[: len(places) // self.requests * self.requests].reshape(-1, self.requests)
        return cycle(rows.tolist())


PATTERNS: Final[Mapping[str, Pattern]] = {
    one.name: one
    for one in (
        Pattern(name="VPIC-IO 1D", write=True, request_bytes=16 * _MIB, printed=(327.2, 321.6)),
        Pattern(name="VPIC-IO 2D", write=True, request_bytes=4 * _MIB, printed=(319.4, 317.7)),
        Pattern(name="VPIC-IO 3D", write=True, request_bytes=_MIB, printed=(331.1, 326.1)),
        # Of each variable the first half.
        Pattern(
            name="BDCATS-IO partial",
            write=False,
            request_bytes=8 * _MIB,
            stride_bytes=16 * _MIB,
            printed=(441.3, 436.1),
        ),
        # Of each variable every second block of 16,384 particles.
        Pattern(
            name="BDCATS-IO strided",
            write=False,
            request_bytes=64 * _KIB,
            requests=128,
            stride_bytes=128 * _KIB,
            printed=(455.5, 455.5),
        ),
        Pattern(name="BDCATS-IO full", write=False, request_bytes=16 * _MIB, printed=(463.3, 463.1)),
        # DLIO reads BERT's TFRecord files in pieces of 256 KiB, and Megatron's samples where they lie, a batch in a call.
        Pattern(name="BERT", write=False, request_bytes=256 * _KIB),
        Pattern(
            name="Megatron",
            write=False,
            request_bytes=WORKLOADS["megatron"].record_bytes,
            requests=WORKLOADS["megatron"].sizes["fit"].batch,
            random=True,
        ),
    )
}
KERNELS: Final = ("BERT", "Megatron")
"""The kernels of DLIO, DIAL's Figure 3."""


def random_pattern(random: Random) -> Pattern:
    """Return one of the simple patterns that DIAL is trained on: one size, in order or not, reads or writes."""
    size = random.choice((8 * _KIB, _MIB, 16 * _MIB))
    return Pattern(
        name="",
        write=random.random() < 0.5,
        request_bytes=size,
        requests=random.choice([count for count in (1, 4, 32, 256) if count * size <= _MOST_CALL_BYTES]),
        random=random.random() < 0.5,
    )


def fill(file: Path, size_bytes: int) -> None:
    """Write a file of random bytes, all of it."""
    with AioHandle() as handle:
        memory = aligned(min(_MOST_CALL_BYTES, size_bytes))
        np.copyto(memory, np.random.default_rng(0).integers(0, 256, len(memory), np.uint8))
        for at in range(0, size_bytes, len(memory)):
            handle.pwrite(memory[: size_bytes - at], file, at)


def run_pattern(pattern: Pattern, file: Path, size_bytes: int, handle: AioHandle, end_s: float) -> tuple[int, int]:
    """Run a pattern until a time of the monotonic clock, one call at least; return bytes and nanoseconds."""
    memory = aligned(pattern.call_bytes)
    memory.fill(1)
    size, done, begun_ns = pattern.request_bytes, 0, time.monotonic_ns()
    for places in pattern.calls(size_bytes):
        handle.submit(
            Request(buffer=memory[number * size : (number + 1) * size], file=file, offset=at, write=pattern.write)
            for number, at in enumerate(places)
        )
        handle.wait()
        done += pattern.call_bytes
        if time.monotonic() >= end_s:
            break
    return done, time.monotonic_ns() - begun_ns
