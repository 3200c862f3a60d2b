"""Reads ArrayRecord files with Grain: shuffled by index, read ahead by threads; writes them."""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import Any

__all__ = ["convert", "open_source", "prepared"]

_FILES = 16
_array_record: Any = import_module("array_record.python.array_record_module")
_grain: Any = import_module("grain")
prepared: Any = import_module("mounted").mounted


def convert(records: Iterator[bytes], order: dict[str, Any]) -> None:
    """See emlio_bench.race.consumers.consume. One record per group, for random access."""
    count = order["records"]
    for number in range(_FILES):
        first, after = (count * place // _FILES for place in (number, number + 1))
        path = os.path.join(str(order["out"]), f"{number:05d}.array_record")
        writer = _array_record.ArrayRecordWriter(path, "group_size:1,uncompressed")
        for record in islice(records, after - first):
            writer.write(record)
        writer.close()


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume."""
    options, folder = order["options"], str(order["url"])
    reading = _grain.ReadOptions(num_threads=int(options["threads"]), prefetch_buffer_size=int(options["ahead"]))
    paths = sorted(entry.path for entry in os.scandir(folder) if entry.name.endswith(".array_record"))
    source = _grain.MapDataset.source(_grain.sources.ArrayRecordDataSource(paths))

    def batches(number: int) -> Iterator[Sequence[Any]]:
        shuffled = source.seed(order["seed"]).shuffle(seed=order["seed"] + number)
        read = shuffled.to_iter_dataset(reading).batch(order["batch"], drop_remainder=False, batch_fn=list)
        if "workers" in options:
            read = read.mp_prefetch(_grain.MultiprocessingOptions(num_workers=int(options["workers"])))
        return iter(read)

    yield batches
