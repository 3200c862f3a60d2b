"""Reads files with SPDL: reading tasks in a pool of threads, and batches in order of completion."""

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

__all__ = ["open_source", "prepared"]

_SINK_BATCHES = 3
_pipeline: Any = import_module("spdl.pipeline")
_mounted: Any = import_module("mounted")
prepared: Any = _mounted.mounted


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume.

    The files are listed in advance, because a source may not block.
    """
    tasks = int(order["options"]["tasks"])
    paths = _mounted.files_below(order["url"])

    def batches(number: int) -> Iterator[Sequence[Any]]:
        shuffled = list(paths)
        random.Random(f"{order['seed']} {number}").shuffle(shuffled)
        pipeline = (
            _pipeline.PipelineBuilder()
            .add_source(shuffled)
            .pipe(_read, concurrency=tasks)
            .aggregate(order["batch"])
            .add_sink(_SINK_BATCHES)
            .build(num_threads=tasks)
        )
        with pipeline.auto_stop():
            yield from pipeline

    yield batches
