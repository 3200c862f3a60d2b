"""Reads files or TFRecord files with DALI's readers.

Covers: a pipeline that only reads, and one that decodes pictures. Does not cover: the processing of
pictures (emlio_bench.race.consumers.training_graph).
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
_graph: Any = import_module("training_graph")
prepared: Any = import_module("mounted").mounted


def _files(folder: str, more: dict[str, Any]) -> tuple[Any, Any]:
    """Return each file's bytes, and the number in its name.

    The folders are listed here, because DALI's own listing gives no numbers.
    """
    places = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir())
    files = [entry.path for place in places for entry in sorted(os.scandir(place), key=lambda entry: entry.name)]
    numbers = [int(os.path.basename(path).partition(".")[0]) for path in files]
    records, labels = _readers.file(
        files=files, labels=numbers, random_shuffle=True, pad_last_batch=True, name=_READER, **more
    )
    return records, labels


def _examples(folders: Sequence[str], features: dict[str, Any], more: dict[str, Any]) -> Any:
    files = [os.path.join(folder, name) for folder in folders for name in os.listdir(folder)]
    shards = sorted((path for path in files if not path.endswith(".idx")), key=os.path.basename)
    return _readers.tfrecord(
        path=shards,
        index_path=[f"{path}.idx" for path in shards],
        features=features,
        random_shuffle=True,
        pad_last_batch=True,
        name=_READER,
        **more,
    )


def _outputs(folders: Sequence[str], form: str, decode: bool, device: str, more: dict[str, Any]) -> tuple[Any, ...]:
    """Return the records, or processed pictures with their numbers or names."""
    text = _tfrecord.FixedLenFeature((), _tfrecord.string, "")
    if not decode:
        return (
            _files(folders[0], more)[0] if form == "file" else _examples(folders, {"record": text}, more)["record"],
        )
    if form == "file":
        encoded, numbers = _files(folders[0], more)
    else:
        read = _examples(folders, {_graph.IMAGE: text, _graph.NAME: text}, more)
        encoded, numbers = read[_graph.IMAGE], read[_graph.NAME]
    return _graph.train_on(encoded, device), numbers


def _numbers(numbers: Any, count: int) -> list[int]:
    """Return the ids of the first pictures of a batch, from their numbers or from their names."""
    found = [numbers.at(place) for place in range(count)]
    if str(found[0].dtype) == "uint8":
        return [int(bytes(name).partition(b"_")[2].partition(b".")[0]) for name in found]
    return [number.item() for number in found]


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume."""
    options, batch, decode = order["options"], order["batch"], order["decode"]
    more: dict[str, Any] = {}
    if "ahead" in options:
        more = {"prefetch_queue_depth": int(options["ahead"]), "dont_use_mmap": True, "read_ahead": True}
    threads = _graph.THREADS if decode else _THREADS
    device, trains = _graph.device_of(order), "model" in options
    pipeline: Any = _dali.Pipeline(
        batch_size=batch, num_threads=threads, device_id=None if device == "cpu" else 0, seed=order["seed"]
    )
    folders = [order["url"], *([order["here"]] if order["here"] else [])]
    with pipeline:
        pipeline.set_outputs(*_outputs(folders, options["form"], decode, device, more))
    pipeline.build()
    left_in_epoch = pipeline.reader_meta(_READER)["epoch_size"]

    def batches(number: int) -> Iterator[Sequence[Any]]:
        left = left_in_epoch
        while left > 0:
            made = pipeline.run()
            # The last batch is padded with copies of its last record.
            count = min(left, batch)
            if decode:
                pictures = _graph.tensor_of(made[0], count, device) if trains else None
                yield _graph.ids_of(_numbers(made[1], count), pictures)
            else:
                yield [made[0].at(place) for place in range(count)]
            left -= batch

    try:
        yield batches
    finally:
        # The pipeline maps files, and a file system with mapped files cannot be unmounted.
        pipeline = None
        gc.collect()
