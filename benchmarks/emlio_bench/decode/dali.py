"""One DALI pipeline on two sources: DALI's own reader of TFRecord files, and `EmlioLoader`."""

import importlib
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, Final

from emlio import DaliPipeline, EmlioLoader
from emlio.dali import inputs
from emlio.index.dali_index import dali_index_name
from emlio_bench.decode.order import GPU, IMAGE, LABEL, read_order, train_on
from emlio_bench.harness.data import shard_paths

__all__ = ["train_on_dalis_reader", "train_on_loader"]

_OUTPUTS: Final = ["image", "label"]
_QUEUE_DEPTH: Final = 2
_READER: Final = "reader"
_SHUFFLED: Final = 1024
"""The buffer of records that DALI's reader draws from; its default size."""


def _graph(encoded: Any, label: Any, device: str) -> tuple[Any, Any]:
    """Return the usual graph for training on ImageNet."""
    fn, types = _module("fn"), _module("types")
    # A "mixed" decoder takes bytes in host memory and makes pictures on the GPU.
    images = fn.decoders.image_random_crop(
        encoded,
        device="mixed" if device == GPU else "cpu",
        output_type=types.RGB,
        random_area=[0.08, 1.0],
        random_aspect_ratio=[3 / 4, 4 / 3],
    )
    images = fn.resize(images, size=(224, 224))
    images = fn.crop_mirror_normalize(
        images,
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=[0.485 * 255, 0.456 * 255, 0.406 * 255],
        std=[0.229 * 255, 0.224 * 255, 0.225 * 255],
        mirror=fn.random.coin_flip(probability=0.5),
    )
    return images, label.gpu() if device == GPU else label


def _module(name: str) -> Any:
    return importlib.import_module(f"nvidia.dali.{name}")


def train_on_dalis_reader(orders: bytes) -> None:
    """Run a pipeline with DALI's reader, in DALI's own iterator for PyTorch."""
    order = read_order(orders)
    dali: Any = importlib.import_module("nvidia.dali")
    fn, tfrecord = _module("fn"), _module("tfrecord")
    paths = shard_paths(Path(order.directory))
    indexes = [str(Path(order.index_directory) / dali_index_name(path.name)) for path in paths]

    def training() -> tuple[Any, Any]:
        record = fn.readers.tfrecord(
            path=[str(path) for path in paths],
            index_path=indexes,
            features={
                IMAGE: tfrecord.FixedLenFeature((), tfrecord.string, ""),
                LABEL: tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
            },
            random_shuffle=True,
            initial_fill=min(_SHUFFLED, order.images),
            name=_READER,
        )
        return _graph(record[IMAGE], record[LABEL], order.device)

    pipe = dali.pipeline_def(training)(
        batch_size=order.batch,
        num_threads=order.threads,
        device_id=0 if order.device == GPU else None,
        prefetch_queue_depth=_QUEUE_DEPTH,
    )
    policy = _module("plugin.base_iterator").LastBatchPolicy.PARTIAL
    iterator = _module("plugin.pytorch").DALIGenericIterator(
        [pipe], _OUTPUTS, reader_name=_READER, last_batch_policy=policy, auto_reset=True
    )
    train_on(_Unpacked(iterator), order)


class _Unpacked:
    """An iterator that unpacks DALI's lists, which have one batch for each pipeline."""

    def __init__(self, batches: Iterable[list[Any]]) -> None:
        self._batches = batches

    def __iter__(self) -> Generator[Any]:
        for (batch,) in self._batches:
            yield batch


def train_on_loader(orders: bytes) -> None:
    """Run the same pipeline on the loader, from a daemon or from this host's disks."""
    order = read_order(orders)

    def training() -> tuple[Any, Any]:
        encoded, label = inputs(IMAGE, LABEL)
        return _graph(encoded, label, order.device)

    loader = EmlioLoader(
        order.address,
        batch_size=order.batch,
        dali=DaliPipeline(training, args={"prefetch_queue_depth": _QUEUE_DEPTH}, outputs=_OUTPUTS),
        threads=order.threads,
        device="cuda" if order.device == GPU else "cpu",
        rank=0,
        world_size=1,
    )
    train_on(loader, order)
