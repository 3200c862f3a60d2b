"""Reads files or TFRecord files with DALI's readers, on the CPU.

Covers: a pipeline that only reads. Does not cover: decoding.
"""

import gc
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

__all__ = ["open_source", "prepared"]

_THREADS = 4
_READER = "reader"
_dali: Any = import_module("nvidia.dali")
_readers: Any = import_module("nvidia.dali.fn").readers
_tfrecord: Any = import_module("nvidia.dali.tfrecord")
prepared: Any = import_module("mounted").mounted


def _read(folder: str, form: str, more: dict[str, Any]) -> Any:
    if form == "file":
        more["file_filters"] = ["*.bin"]  # else it takes pictures only
        records, _ = _readers.file(file_root=folder, random_shuffle=True, pad_last_batch=True, name=_READER, **more)
        return records
    names = sorted(name for name in os.listdir(folder) if name.endswith(".tfrecord"))
    features = _readers.tfrecord(
        path=[os.path.join(folder, name) for name in names],
        index_path=[os.path.join(folder, name.replace(".tfrecord", ".idx")) for name in names],
        features={"record": _tfrecord.FixedLenFeature((), _tfrecord.string, "")},
        random_shuffle=True,
        pad_last_batch=True,
        name=_READER,
        **more,
    )
    return features["record"]


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio.benchmarks.race.consumers.consume."""
    options, batch = order["options"], order["batch"]
    more: dict[str, Any] = {}
    if "ahead" in options:
        more = {"prefetch_queue_depth": int(options["ahead"]), "dont_use_mmap": True, "read_ahead": True}
    pipeline: Any = _dali.Pipeline(batch_size=batch, num_threads=_THREADS, device_id=None, seed=order["seed"])
    with pipeline:
        pipeline.set_outputs(_read(order["url"], options["form"], more))
    pipeline.build()
    count = pipeline.reader_meta(_READER)["epoch_size"]

    def batches(number: int) -> Iterator[Sequence[Any]]:
        left = count
        while left > 0:
            (records,) = pipeline.run()
            # The last batch is filled up with its last record.
            yield [records.at(place) for place in range(min(left, batch))]
            left -= batch

    try:
        yield batches
    finally:
        # It maps files, and a file system with mapped files cannot be unmounted.
        pipeline = None
        gc.collect()
