"""Reads with tf.data service: its workers read TFRecord files of their host, shuffle and batch; batches are fetched from them.

Covers: the pipeline that they carry out, fetching its batches. Does not cover: decoding, the workers
(emlio.benchmarks.race.consumers.serve_tfdata).
"""

import json
import os
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
_tf: Any = import_module("tensorflow")
_service: Any = _tf.data.experimental.service

__all__ = ["open_source"]


def _fetched(names: Any, files: int, order: dict[str, Any]) -> Any:
    """Batches of the records in files with these names, made by the workers of a service."""
    options, services = order["options"], json.loads(order["url"])["services"]
    dataset = (
        names.interleave(
            _tf.data.TFRecordDataset,
            cycle_length=max(files // int(options["workers"]), 1),
            num_parallel_calls=_tf.data.AUTOTUNE,
            deterministic=False,
        )
        .shuffle(min(int(options["buffer"]), order["corpus"]["records"]))
        .batch(order["batch"], num_parallel_calls=_tf.data.AUTOTUNE)
        .prefetch(_tf.data.AUTOTUNE)
    )
    return dataset.apply(
        _service.distribute(
            processing_mode=_service.ShardingPolicy.DYNAMIC,
            service=f"grpc://{services[options['workers']]}",
            max_outstanding_requests=int(options["requests"]) if "requests" in options else None,
            compression=None if "plain" in options else "AUTO",
        )
    ).prefetch(_tf.data.AUTOTUNE)


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio.benchmarks.race.consumers.consume."""
    place, workers = json.loads(order["url"]), int(order["options"]["workers"])
    names = list(place["files"])
    fetched: Any = None

    def batches(number: int) -> Iterator[Sequence[Any]]:
        nonlocal fetched
        if workers > 1 or fetched is None:
            random.Random(f"{order['seed']} {number}").shuffle(names)
            source = _tf.data.Dataset.from_tensor_slices(names)
            # Where there are several workers, it would have the first that asks take all files: they get another dataset.
            fetched = _fetched(source if workers > 1 else source.shuffle(len(names)), len(names), order)
        for batch in fetched.as_numpy_iterator():
            yield batch.tolist()

    yield batches
