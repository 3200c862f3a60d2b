"""The processes that reduce: one for each GPU, all in one group.

Covers: the group, its all-reduce without end, slices of time with the bytes reduced in them. Does
not cover: what runs beside it (emlio_bench.allreduce.run).
"""

import importlib
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import msgspec

from emlio.errors import TransportError
from emlio_bench.harness.pair import ANSWER_S
from emlio_bench.processes.child import Child, say, start_worker

__all__ = ["ReduceOrder", "Reducing", "Slice", "rate_of", "reduce", "reducing", "slice_of"]

_LEAST_SLICE_NS: Final = 250_000_000
_SLICES: Final = 100
"""Slices of a measurement.

The slices are read after the loader has run beside the all-reduce. All of them must fit into the
pipe, which holds 64 KiB; else the process would stop.
"""
_START_S: Final = 90.0
"""Imports of PyTorch, and NCCL's setup, which looks at all GPUs and their links."""


class ReduceOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one process.

    Attributes:
        device: "cuda" for NCCL, "cpu" for Gloo.
        rank: number of the process.
        world: number of processes.
        port: port of the group's store on this machine.
        buffer_bytes: bytes of the buffer.
        slice_ns: least length of a slice.
    """

    device: str
    rank: int
    world: int
    port: int
    buffer_bytes: int
    slice_ns: int


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes that a process reduced or received in a slice of time, by CLOCK_MONOTONIC."""

    begun_ns: int
    ended_ns: int
    bytes: int

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second."""
        return self.bytes * 1e9 / (self.ended_ns - self.begun_ns)


def slice_of(span_ns: int) -> int:
    """Return the length of a slice for measurements of this length."""
    return max(_LEAST_SLICE_NS, span_ns // _SLICES)


def reduce(orders: bytes) -> None:
    """Reduce a buffer again and again until this process is ended, and report each slice.

    The operation on a GPU is the mean. A sum in place in a group of one would be no work at all for
    NCCL; for a mean it starts its kernel, which reads and writes the buffer.
    """
    order = msgspec.json.decode(orders, type=ReduceOrder)
    torch: Any = importlib.import_module("torch")
    group: Any = importlib.import_module("torch.distributed")
    on_gpu = order.device == "cuda"
    if on_gpu:
        torch.cuda.set_device(order.rank)
    group.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"tcp://127.0.0.1:{order.port}",
        rank=order.rank,
        world_size=order.world,
    )
    operation = group.ReduceOp.AVG if on_gpu else group.ReduceOp.SUM
    buffer = torch.zeros(order.buffer_bytes // 4, device=order.device)
    arrive = torch.cuda.synchronize if on_gpu else _nothing
    group.all_reduce(buffer, op=operation)  # the first one connects
    arrive()
    begun_ns, count = time.monotonic_ns(), 0
    while True:
        group.all_reduce(buffer, op=operation)
        arrive()
        count += 1
        now_ns = time.monotonic_ns()
        if now_ns - begun_ns >= order.slice_ns:
            say(Slice(begun_ns=begun_ns, ended_ns=now_ns, bytes=count * order.buffer_bytes))
            begun_ns, count = now_ns, 0


def _nothing() -> None:
    """Gloo's operations have ended when they return."""


class Reducing:
    """A group at work."""

    def __init__(self, members: Sequence[Child], slice_ns: int) -> None:
        """Wait until every process has reduced for a slice.

        Args:
            members: the processes.
            slice_ns: length of their slices.
        """
        self._members = members
        self._slice_s = slice_ns / 1e9
        for member in members:
            member.hear(Slice, _START_S + self._slice_s)

    def bytes_per_s(self, from_ns: int, to_ns: int) -> float:
        """Return the mean rate of the processes between these moments, the later of which is past."""
        rates = [rate_of(self._until(member, to_ns), from_ns, to_ns) for member in self._members]
        return sum(rates) / len(rates)

    def _until(self, member: Child, to_ns: int) -> Generator[Slice, None, None]:
        while True:
            one = member.hear(Slice, ANSWER_S + self._slice_s)
            yield one
            if one.ended_ns >= to_ns:
                return


def rate_of(slices: Iterable[Slice], from_ns: int, to_ns: int) -> float:
    """Return the bytes per second between two moments; a slice counts as far as it lies between them.

    Raises:
        TransportError: none does.
    """
    total_bytes, total_ns = 0.0, 0
    for one in slices:
        within_ns = min(one.ended_ns, to_ns) - max(one.begun_ns, from_ns)
        if within_ns > 0:
            total_bytes += one.bytes * within_ns / (one.ended_ns - one.begun_ns)
            total_ns += within_ns
    if not total_ns:
        raise TransportError(f"a process must report between {from_ns} ns and {to_ns} ns, it did not")
    return total_bytes * 1e9 / total_ns


@contextmanager
def reducing(device: str, world: int, port: int, buffer_bytes: int, slice_ns: int) -> Generator[Reducing, None, None]:
    """Run a group while the block lasts.

    Args:
        device: see `ReduceOrder`.
        world: number of processes.
        port: free port of this machine.
        buffer_bytes: bytes of the buffer.
        slice_ns: length of a slice; see `slice_of`.
    """
    with ExitStack() as stack:
        orders = [
            ReduceOrder(device=device, rank=rank, world=world, port=port, buffer_bytes=buffer_bytes, slice_ns=slice_ns)
            for rank in range(world)
        ]
        yield Reducing([stack.enter_context(start_worker("allreduce", order)) for order in orders], slice_ns)
