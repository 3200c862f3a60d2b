"""The storage side of the paper's method.

Usage: python -m emlio_bench.race.paper_sender DIRECTORY LISTEN ADDRESS PORT.

A reader requests epochs at PORT of LISTEN, and receives the address of a PUSH socket of its own, at
ADDRESS as readers see it. Readers are served one after the other.

Covers: this protocol, and the data that is sent. Does not cover: the receiving side
(emlio_bench.race.consumers.read_paper).
"""

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import zmq

from emlio.shards.dataset import open_dataset
from emlio.tfrecord import FOOTER_BYTES, HEADER_BYTES
from emlio_bench.race.served import DATA_PORTS
from emlio_bench.subjects.bare import map_files

__all__ = ["EpochsWanted", "main"]

_HIGH_WATER_MARK: Final = 16
_LINGER_MS: Final = 600_000


class EpochsWanted(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a reader."""

    epochs: int
    batch: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shard:
    view: memoryview
    bounds: list[int]

    def batches(self, records: int) -> Iterator[list[bytes]]:
        for first in range(0, len(self.bounds) - 1, records):
            places = self.bounds[first : first + records + 1]
            yield [bytes(self.view[begin + HEADER_BYTES : end - FOOTER_BYTES]) for begin, end in pairwise(places)]


def main(directory: str, listen: str, address: str, port: str) -> None:
    """Serve readers until this process is ended."""
    with open_dataset("race", Path(directory)) as dataset:
        views = map_files([str(shard.path) for shard in dataset.shards])
        shards = [
            _Shard(view=view, bounds=shard.offsets.tolist()) for view, shard in zip(views, dataset.shards, strict=True)
        ]
    first, last = DATA_PORTS
    with zmq.Context() as context, context.socket(zmq.REP) as asked:
        asked.bind(f"tcp://{listen}:{port}")
        while True:
            wanted = msgspec.json.decode(asked.recv(), type=EpochsWanted)
            with context.socket(zmq.PUSH) as pushed:
                pushed.setsockopt(zmq.SNDHWM, _HIGH_WATER_MARK)
                pushed.setsockopt(zmq.LINGER, _LINGER_MS)
                own = pushed.bind_to_random_port(f"tcp://{listen}", first, last + 1)
                asked.send(f"tcp://{address}:{own}".encode())
                _send(pushed, shards, wanted)


def _send(pushed: "zmq.Socket[bytes]", shards: list[_Shard], wanted: EpochsWanted) -> None:
    msgpack: Any = import_module("msgpack")
    draws = random.Random(wanted.seed)
    for _ in range(wanted.epochs):
        shuffled = list(shards)
        draws.shuffle(shuffled)
        for shard in shuffled:
            for records in shard.batches(wanted.batch):
                pushed.send(msgpack.packb({"records": records, "labels": list(range(len(records)))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
