"""The paper's method: batches packed by msgpack, shards in shuffled order, no checks.

A batch of records is one msgpack message of bytes.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from emlio.index.opening import open_dataset
from emlio.tfrecord import FOOTER_BYTES, HEADER_BYTES
from emlio_bench.harness.meter import Measurement, Meter
from emlio_bench.harness.scenario import Scenario, Window
from emlio_bench.harness.sides import ReceiveOrder, bound_push, connected_pull, measure_pair
from emlio_bench.processes.child import say
from emlio_bench.subjects.bare import map_files

__all__ = ["Paper", "batches", "receive", "send"]


class _SendOrder(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    batch_records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """See `Subject`."""

    name: str = "paper"

    def measure(self, scenario: Scenario, directory: Path, window: Window) -> Measurement:
        """See `Subject`."""
        order = _SendOrder(directory=str(directory), batch_records=scenario.paper_records)
        return measure_pair("paper", order, window)


def send(orders: bytes) -> None:
    """Send the dataset over and over, with its shards in another order each time."""
    order = msgspec.json.decode(orders, type=_SendOrder)
    msgpack: Any = import_module("msgpack")
    with open_dataset("bench", Path(order.directory)) as dataset:
        views = map_files([str(path) for path in dataset.shard_paths])
        bounds = [shard.offsets.tolist() for shard in dataset.shards]
    shuffled = list(range(len(views)))
    draws = random.Random(0)
    with bound_push() as socket:
        while True:
            draws.shuffle(shuffled)
            for number in shuffled:
                for first, records in batches(views[number], bounds[number], order.batch_records):
                    labels = list(range(first, first + len(records)))
                    socket.send(msgpack.packb({"records": records, "labels": labels}))


def batches(view: memoryview, bounds: Sequence[int], records: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the batches of a shard, each with the number of its first record.

    Args:
        view: the mapped shard.
        bounds: offsets of the records, and the end of the last one.
        records: records in a batch.
    """
    for first in range(0, len(bounds) - 1, records):
        places = bounds[first : first + records + 1]
        yield first, [bytes(view[begin + HEADER_BYTES : end - FOOTER_BYTES]) for begin, end in pairwise(places)]


def receive(orders: bytes) -> None:
    """Receive and unpack for one window, and report the measurement."""
    order = msgspec.json.decode(orders, type=ReceiveOrder)
    msgpack: Any = import_module("msgpack")
    meter = Meter(order.window, order.sender_pid)
    with connected_pull(order.endpoint) as socket:
        while True:
            records: list[bytes] = msgpack.unpackb(socket.recv())["records"]
            if meter.add(sum(map(len, records)), len(records)):
                break
        say(meter.measurement())
