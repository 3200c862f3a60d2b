"""The storage side of the paper's method.

Usage: python -m emlio_bench.race.servers.paper_sender DIRECTORY LISTEN ADDRESS PORT.

A reader requests epochs at PORT of LISTEN, and receives the addresses of PUSH sockets of its own, at
ADDRESS as readers see it: one for each sending thread. Readers are served one after the other.

In each epoch the shards are shuffled and dealt out to the threads, as in the paper's algorithm 2.
Messages carry the number of their epoch, since a thread may be an epoch ahead of another.
"""

import random
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec
import zmq

from emlio.example import parse_example
from emlio.index.opening import open_dataset
from emlio_bench.race.records.file_forms import IMAGE_FEATURE
from emlio_bench.race.servers.served import DATA_PORTS
from emlio_bench.subjects.bare import map_files
from emlio_bench.subjects.paper import batches

__all__ = ["EpochsWanted", "main"]

_HIGH_WATER_MARK: Final = 16
_LINGER_MS: Final = 600_000


class EpochsWanted(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a reader.

    Attributes:
        epochs: number of epochs.
        batch: records in a message.
        seed: seed of the order of shards.
        workers: number of sending threads, T in the paper.
        decode: whether records are Examples of pictures, of which the pictures are sent.
    """

    epochs: int
    batch: int
    seed: int
    workers: int = 1
    decode: bool = False


@dataclass(frozen=True, slots=True)
class _Shard:
    view: memoryview
    bounds: list[int]
    first: int


def main(directory: str, listen: str, address: str, port: str) -> None:
    """Serve readers until this process is ended."""
    with open_dataset("race", Path(directory)) as dataset:
        views = map_files([str(path) for path in dataset.shard_paths])
        shards: list[_Shard] = []
        for view, shard in zip(views, dataset.shards, strict=True):
            first = shards[-1].first + len(shards[-1].bounds) - 1 if shards else 0
            shards.append(_Shard(view, shard.offsets.tolist(), first))
    low, high = DATA_PORTS
    with zmq.Context() as context, context.socket(zmq.REP) as asked:
        asked.bind(f"tcp://{listen}:{port}")
        while True:
            wanted = msgspec.json.decode(asked.recv(), type=EpochsWanted)
            with ExitStack() as stack:
                pushed: list[zmq.Socket[bytes]] = []
                addresses: list[str] = []
                for _ in range(wanted.workers):
                    one = stack.enter_context(context.socket(zmq.PUSH))
                    one.setsockopt(zmq.SNDHWM, _HIGH_WATER_MARK)
                    one.setsockopt(zmq.LINGER, _LINGER_MS)
                    addresses.append(f"tcp://{address}:{one.bind_to_random_port(f'tcp://{listen}', low, high + 1)}")
                    pushed.append(one)
                asked.send(msgspec.json.encode(addresses))
                with ThreadPoolExecutor(wanted.workers, "send-worker") as pool:
                    for done in [pool.submit(_send, one, shards, wanted, worker) for worker, one in enumerate(pushed)]:
                        done.result()


def _send(pushed: "zmq.Socket[bytes]", shards: Sequence[_Shard], wanted: EpochsWanted, worker: int) -> None:
    msgpack: Any = import_module("msgpack")
    draws = random.Random(wanted.seed)
    for epoch in range(wanted.epochs):
        shuffled = list(shards)
        draws.shuffle(shuffled)
        for shard in shuffled[worker :: wanted.workers]:
            for first, records in batches(shard.view, shard.bounds, wanted.batch):
                samples = [_picture(record) for record in records] if wanted.decode else records
                labels = list(range(shard.first + first, shard.first + first + len(records)))
                pushed.send(msgpack.packb({"epoch": epoch, "records": samples, "labels": labels}))


def _picture(record: bytes) -> bytes:
    (picture,) = parse_example(record)[IMAGE_FEATURE]
    assert isinstance(picture, memoryview)
    return bytes(picture)


if __name__ == "__main__":
    main(*sys.argv[1:])
