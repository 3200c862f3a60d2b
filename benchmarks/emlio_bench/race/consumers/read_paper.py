"""Reads with the paper's method: a PULL socket, batches unpacked by msgpack, decoded by DALI."""

import json
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import zmq

__all__ = ["open_source", "prepared"]

_HIGH_WATER_MARK = 16
_SILENT_MS = 120_000
_QUEUED_BATCHES = 2
_msgpack: Any = import_module("msgpack")
_graph: Any = import_module("training_graph")
prepared: Any = _graph.imported


class _Pulled:
    """The messages in the order of their epochs. One sending thread may be an epoch ahead of another."""

    def __init__(self, socket: "zmq.Socket[bytes]", records: int) -> None:
        self._socket = socket
        self._records = records
        self._early: list[Any] = []

    def epoch(self, number: int) -> Iterator[Any]:
        """Yield the messages of an epoch."""
        left = self._records
        waiting, self._early = self._early, []
        while left > 0:
            said = waiting.pop() if waiting else _msgpack.unpackb(self._socket.recv())
            if said["epoch"] != number:
                self._early.append(said)
                continue
            left -= len(said["records"])
            yield said
        self._early += waiting


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume."""
    with zmq.Context() as context, context.socket(zmq.REQ) as asking, context.socket(zmq.PULL) as socket:
        for one in (asking, socket):
            one.setsockopt(zmq.LINGER, 0)
            one.setsockopt(zmq.RCVTIMEO, _SILENT_MS)
        socket.setsockopt(zmq.RCVHWM, _HIGH_WATER_MARK)
        asking.connect(order["url"])
        wanted = {key: order[key] for key in ("epochs", "batch", "seed", "decode")}
        asking.send(json.dumps({**wanted, "workers": int(order["options"].get("workers", 1))}).encode())
        for address in json.loads(asking.recv()):
            socket.connect(address)
        pulled = _Pulled(socket, order["corpus"]["records"])
        if order["decode"]:
            yield _decoded(pulled, order)
            return

        def batches(number: int) -> Iterator[Sequence[Any]]:
            for said in pulled.epoch(number):
                yield said["records"]

        yield batches


def _decoded(pulled: _Pulled, order: dict[str, Any]) -> Callable[[int], Iterator[Sequence[Any]]]:
    """Return the batches of the paper's pipeline: exec_async and exec_pipelined, and a prefetch queue."""
    dali: Any = import_module("nvidia.dali")
    fn: Any = import_module("nvidia.dali.fn")
    numpy: Any = import_module("numpy")
    fed: deque[Sequence[int]] = deque()
    feeding: list[Iterator[Any]] = []

    def feed() -> list[Any]:
        said = next(feeding[0])
        fed.append(said["labels"])
        return [numpy.frombuffer(record, numpy.uint8) for record in said["records"]]

    device, trains = _graph.device_of(order), "model" in order["options"]
    pipeline: Any = dali.Pipeline(
        batch_size=order["batch"],
        num_threads=order["decoders"],
        device_id=None if device == "cpu" else 0,
        seed=order["seed"],
        prefetch_queue_depth=_QUEUED_BATCHES,
        exec_async=True,
        exec_pipelined=True,
    )
    with pipeline:
        encoded = fn.external_source(source=feed, batch=True, dtype=dali.types.UINT8, ndim=1)
        pipeline.set_outputs(_graph.train_on(encoded, device))
    pipeline.build()

    def batches(number: int) -> Iterator[Sequence[Any]]:
        feeding[:] = [pulled.epoch(number)]
        while True:
            try:
                made = pipeline.run()
            except StopIteration:
                pipeline.reset()
                return
            numbers = fed.popleft()
            yield _graph.ids_of(numbers, _graph.tensor_of(made[0], len(numbers), device) if trains else None)

    return batches
