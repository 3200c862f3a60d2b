"""The bare socket pair: the highest throughput of a Python process with ZeroMQ.

One PUSH and one PULL socket carry pairs of a small message and a slice of the dataset's mapped
files. The sender goes through all data, as a loader does, so that both read as much memory. The
data are not checked, placed or touched. A system built on one such pair cannot be faster.
"""

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from emlio_bench.harness.data import shard_paths
from emlio_bench.harness.meter import Measurement, Meter
from emlio_bench.harness.scenario import BARE, Scenario, Window
from emlio_bench.harness.sides import ReceiveOrder, bound_push, connected_pull, measure_pair
from emlio_bench.processes.child import say

__all__ = ["Bare", "map_files", "receive", "send", "slices"]

_HEADER: Final = bytes(64)


class _SendOrder(msgspec.Struct, frozen=True, kw_only=True):
    files: list[str]
    message_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """See `Subject`."""

    name: str = BARE

    def measure(self, scenario: Scenario, directory: Path, window: Window) -> Measurement:
        """See `Subject`."""
        files = [str(path) for path in shard_paths(directory)]
        return measure_pair("bare", _SendOrder(files=files, message_bytes=scenario.message_bytes), window)


def map_files(files: Sequence[str]) -> list[memoryview]:
    """Map files with all their pages present, so that page faults do not lower the limit."""
    views: list[memoryview] = []
    for name in files:
        with open(name, "rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=mmap.PROT_READ)
        views.append(memoryview(mapping))
    return views


def slices(views: Sequence[memoryview], size_bytes: int) -> Iterator[memoryview]:
    """Yield all data in pieces of `size_bytes`. The last piece of a file may be shorter."""
    for view in views:
        for begin in range(0, len(view), size_bytes):
            yield view[begin : begin + size_bytes]


def send(orders: bytes) -> None:
    """Send the data over and over."""
    order = msgspec.json.decode(orders, type=_SendOrder)
    views = map_files(order.files)
    with bound_push() as socket:
        while True:
            for piece in slices(views, order.message_bytes):
                socket.send(_HEADER)
                socket.send(piece, copy=False)


def receive(orders: bytes) -> None:
    """Receive for one window, and report the measurement."""
    order = msgspec.json.decode(orders, type=ReceiveOrder)
    meter = Meter(order.window, order.sender_pid)
    with connected_pull(order.endpoint) as socket:
        while True:
            socket.recv(copy=False)
            payload = socket.recv(copy=False)
            if meter.add(len(payload), 0):
                break
        say(meter.measurement())
