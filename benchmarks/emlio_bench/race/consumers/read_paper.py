"""Reads with the paper's method: one PULL socket, batches unpacked by msgpack.

Covers: requesting epochs, receiving them. Does not cover: losses, which this method does not
detect: the reader would wait until its time limit.
"""

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import zmq

__all__ = ["open_source"]

_HIGH_WATER_MARK = 16
_SILENT_MS = 120_000
_msgpack: Any = import_module("msgpack")


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume."""
    with zmq.Context() as context, context.socket(zmq.REQ) as asking, context.socket(zmq.PULL) as pulled:
        for socket in (asking, pulled):
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVTIMEO, _SILENT_MS)
        pulled.setsockopt(zmq.RCVHWM, _HIGH_WATER_MARK)
        asking.connect(order["url"])
        asking.send(json.dumps({key: order[key] for key in ("epochs", "batch", "seed")}).encode())
        pulled.connect(asking.recv().decode())

        def batches(number: int) -> Iterator[Sequence[Any]]:
            left = order["corpus"]["records"]
            while left > 0:
                records = _msgpack.unpackb(pulled.recv())["records"]
                left -= len(records)
                yield records

        yield batches
