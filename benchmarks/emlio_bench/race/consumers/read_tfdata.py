"""Reads with tf.data service: fetches batches that its workers make.

The workers read TFRecord files of their host, shuffle and batch.
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
    """Return batches of the records in files with these names, made by a service's workers."""
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
    """See emlio_bench.race.consumers.consume."""
    place, workers = json.loads(order["url"]), int(order["options"]["workers"])
    names = list(place["files"])
    fetched: Any = None

    def batches(number: int) -> Iterator[Sequence[Any]]:
        nonlocal fetched
        if workers > 1 or fetched is None:
            random.Random(f"{order['seed']} {number}").shuffle(names)
            source = _tf.data.Dataset.from_tensor_slices(names)
            # With several workers, a shuffle in the dataset would let the first worker that asks
            # take all files. The names are therefore shuffled here, and each epoch gets a new
            # dataset.
            fetched = _fetched(source if workers > 1 else source.shuffle(len(names)), len(names), order)
        for batch in fetched.as_numpy_iterator():
            yield batch.tolist()

    yield batches
