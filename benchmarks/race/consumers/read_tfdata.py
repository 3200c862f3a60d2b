"""Reads with tf.data service: its workers read TFRecord files of their host, shuffle and batch; batches are fetched from them.

Covers: the pipeline that they carry out, fetching its batches. Does not cover: decoding, the workers
(emlio.benchmarks.race.consumers.serve_tfdata).
"""

import json
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
_tf: Any = import_module("tensorflow")
_service: Any = _tf.data.experimental.service

__all__ = ["open_source"]


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio.benchmarks.race.consumers.consume."""
    options, place = order["options"], json.loads(order["url"])
    names = place["files"]
    _tf.random.set_seed(order["seed"])
    dataset = (
        _tf.data.Dataset.from_tensor_slices(names)
        .shuffle(len(names))
        .interleave(_tf.data.TFRecordDataset, num_parallel_calls=_tf.data.AUTOTUNE, deterministic=False)
        .shuffle(min(int(options["buffer"]), order["corpus"]["records"]))
        .batch(order["batch"], num_parallel_calls=_tf.data.AUTOTUNE)
        .prefetch(_tf.data.AUTOTUNE)
    )
    fetched = dataset.apply(
        _service.distribute(
            processing_mode=_service.ShardingPolicy.DYNAMIC,
            service=f"grpc://{place['services'][options['workers']]}",
            max_outstanding_requests=int(options["requests"]) if "requests" in options else None,
            compression=None if "plain" in options else "AUTO",
        )
    ).prefetch(_tf.data.AUTOTUNE)

    def batches(number: int) -> Iterator[Sequence[Any]]:
        for batch in fetched.as_numpy_iterator():
            yield batch.tolist()

    yield batches
