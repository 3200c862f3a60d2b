"""Reads files or TFRecord files with DALI's readers."""

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
_numpy: Any = import_module("numpy")
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


def _outputs(folders: Sequence[str], order: dict[str, Any], device: str, more: dict[str, Any]) -> tuple[Any, ...]:
    """Return the records, or processed pictures with their numbers or names, and labels to learn."""
    form, text = order["options"]["form"], _tfrecord.FixedLenFeature((), _tfrecord.string, "")
    if not order["decode"]:
        return (
            _files(folders[0], more)[0] if form == "file" else _examples(folders, {"record": text}, more)["record"],
        )
    if order["train"]:
        label = _tfrecord.FixedLenFeature([1], _tfrecord.int64, -1)
        read = _examples(folders, {_graph.IMAGE: text, _graph.NAME: text, _graph.LABEL: label}, more)
        return _graph.train_on(read[_graph.IMAGE], device, learn=True), read[_graph.NAME], read[_graph.LABEL]
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


def _batch(made: Any, count: int, order: dict[str, Any]) -> Sequence[Any]:
    """Return the first records of what the pipeline made, as emlio_bench.race.consumers.consume wants them."""
    if not order["decode"]:
        return [made[0].at(place) for place in range(count)]
    pictures = labels = None
    if order["train"] or "model" in order["options"]:
        pictures = _graph.tensor_of(made[0], count, _graph.device_of(order))
    if order["train"]:
        labels = _numpy.array(made[2].as_tensor())[:count]  # a copy, because the pipeline uses its memory again
    found: Sequence[Any] = _graph.ids_of(_numbers(made[1], count), pictures, labels)
    return found


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume."""
    options, batch = order["options"], order["batch"]
    more: dict[str, Any] = {}
    if "ahead" in options:
        more = {"prefetch_queue_depth": int(options["ahead"]), "dont_use_mmap": True, "read_ahead": True}
    threads = order["decoders"] if order["decode"] else _THREADS
    device = _graph.device_of(order)
    pipeline: Any = _dali.Pipeline(
        batch_size=batch, num_threads=threads, device_id=None if device == "cpu" else 0, seed=order["seed"]
    )
    folders = [order["url"], *([order["here"]] if order["here"] else [])]
    with pipeline:
        pipeline.set_outputs(*_outputs(folders, order, device, more))
    pipeline.build()
    left_in_epoch = pipeline.reader_meta(_READER)["epoch_size"]

    def batches(number: int) -> Iterator[Sequence[Any]]:
        left = left_in_epoch
        while left > 0:
            made = pipeline.run()
            # The last batch is padded with copies of its last record.
            count = min(left, batch)
            yield _batch(made, count, order)
            left -= batch

    try:
        yield batches
    finally:
        # The pipeline maps files, and a file system with mapped files cannot be unmounted.
        pipeline = None
        gc.collect()
