"""Pictures decoded by Pillow, in threads, in processes, or without a loader.

Threads run behind `EmlioLoader`, processes behind PyTorch's `DataLoader`.
"""

import importlib
import io
import math
import os
import random
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import numpy as np

from emlio import EmlioLoader
from emlio.example.decode import read_features
from emlio.index.opening import open_dataset
from emlio.tfrecord import FRAME_BYTES, HEADER_BYTES
from emlio_bench.decode.order import IMAGE, LABEL, DecodeOrder, read_order, train_on

__all__ = [
    "Bytes",
    "RandomCrop",
    "TFRecordImages",
    "carry_by_dataloader",
    "carry_by_loader",
    "columns",
    "data_loader",
    "train_on_dataloader",
    "train_on_loader",
    "train_on_memory",
]

_WANTED: Final = frozenset((IMAGE.encode(), LABEL.encode()))
_TRIES: Final = 10
_AREA: Final = (0.08, 1.0)
_SHAPE: Final = (3 / 4, 4 / 3)


class RandomCrop:
    """A transform that crops at random, resizes, mirrors at random, and returns an array."""

    def __init__(self, size: int = 224) -> None:
        # Imported once, because the transform is called for every picture.
        self._image: Any = importlib.import_module("PIL.Image")
        self._size = size

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Return the image and the label from an Example's features."""
        pillow = self._image
        with pillow.open(io.BytesIO(sample[IMAGE])) as file:
            picture = file.convert("RGB")
        part = picture.resize((self._size, self._size), pillow.Resampling.BILINEAR, box=_draw_box(*picture.size))
        if random.random() < 0.5:
            part = part.transpose(pillow.Transpose.FLIP_LEFT_RIGHT)
        # A writable copy: torch warns about memory that cannot be written.
        return {"image": np.array(part), "label": int(sample[LABEL])}


def _draw_box(width: int, height: int) -> tuple[float, float, float, float]:
    """Draw a box as torchvision's RandomResizedCrop does: some tries, then the whole picture."""
    for _ in range(_TRIES):
        area = width * height * random.uniform(*_AREA)
        shape = math.exp(random.uniform(math.log(_SHAPE[0]), math.log(_SHAPE[1])))
        wide, high = math.sqrt(area * shape), math.sqrt(area / shape)
        if wide <= width and high <= height:
            left, top = random.uniform(0, width - wide), random.uniform(0, height - high)
            return left, top, left + wide, top + high
    return 0, 0, width, height


def _features(record: bytes) -> dict[str, Any]:
    features = read_features(memoryview(record), 0, len(record), _WANTED)
    return {IMAGE: features[IMAGE.encode()][1][0], LABEL: features[LABEL.encode()][2][0]}


class TFRecordImages:
    """A map-style dataset written for speed: offsets in memory, one read per record, no checks.

    Each process opens the files that it reads, and keeps them open until it ends.
    """

    def __init__(self, directory: Path, transform: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        with open_dataset(directory.name, directory) as dataset:
            self._paths = dataset.shard_paths
            starts = [np.asarray(shard.starts) for shard in dataset.shards]
            sizes = [np.diff(shard.offsets) - FRAME_BYTES for shard in dataset.shards]
        self._shards = np.repeat(np.arange(len(starts)), [len(part) for part in starts])
        self._starts = np.concatenate(starts) + HEADER_BYTES
        self._sizes = np.concatenate(sizes)
        self._transform = transform
        self._files: dict[int, int] = {}

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._starts)

    def record(self, place: int) -> dict[str, Any]:
        """Return the features of one record, with the image still encoded."""
        shard = int(self._shards[place])
        file = self._files.get(shard)
        if file is None:
            file = self._files[shard] = os.open(self._paths[shard], os.O_RDONLY | os.O_CLOEXEC)
        return _features(os.pread(file, int(self._sizes[place]), int(self._starts[place])))

    def __getitem__(self, place: int) -> dict[str, Any]:
        """Return one transformed sample."""
        return self._transform(self.record(place))

    def close(self) -> None:
        """Close the files that this process opened."""
        while self._files:
            os.close(self._files.popitem()[1])


def data_loader(order: DecodeOrder, transform: Callable[[dict[str, Any]], dict[str, Any]], **more: Any) -> Any:
    """Return PyTorch's loader with worker processes that apply the transform."""
    data: Any = importlib.import_module("torch.utils.data")
    return data.DataLoader(
        TFRecordImages(Path(order.directory), transform),
        batch_size=order.batch,
        shuffle=True,
        num_workers=order.threads,
        persistent_workers=True,
        pin_memory=False,
        **more,
    )


def train_on_dataloader(orders: bytes) -> None:
    """Decode with PyTorch's loader and worker processes."""
    order = read_order(orders)
    train_on(data_loader(order, RandomCrop()), order)


def train_on_loader(orders: bytes) -> None:
    """Decode with EMLIO and worker threads, from a daemon or from this host's disks."""
    order = read_order(orders)
    loader = EmlioLoader(
        order.address,
        batch_size=order.batch,
        fields=[IMAGE, LABEL],
        transform=RandomCrop(),
        threads=order.threads,
        to="torch",
        rank=0,
        world_size=1,
    )
    train_on(loader, order)


def train_on_memory(orders: bytes) -> None:
    """Run only the transform, in one thread, on records in memory: the unavoidable cost."""
    order = read_order(orders)
    transform = RandomCrop()
    dataset = TFRecordImages(Path(order.directory), transform)
    places = np.random.default_rng(0).permutation(len(dataset)).tolist()
    records = [dataset.record(place) for place in places]
    dataset.close()

    class Batches:
        def __iter__(self) -> Generator[Any]:
            for start in range(0, len(records), order.batch):
                yield {"image": [transform(record)["image"] for record in records[start : start + order.batch]]}

    train_on(Batches(), order)


class Bytes:
    """A transform that returns a record's features, with the picture as bytes.

    A pipe between processes can carry bytes.
    """

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Return the features, copied out of the read buffer."""
        return {IMAGE: bytes(sample[IMAGE]), LABEL: int(sample[LABEL])}


def columns(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a batch: the pictures as a list, the labels as one tensor."""
    torch: Any = importlib.import_module("torch")
    return {
        IMAGE: [sample[IMAGE] for sample in samples],
        LABEL: torch.tensor([sample[LABEL] for sample in samples]),
    }


def carry_by_dataloader(orders: bytes) -> None:
    """Read with PyTorch's loader and worker processes."""
    order = read_order(orders)
    train_on(data_loader(order, Bytes(), collate_fn=columns), order, IMAGE)


def carry_by_loader(orders: bytes) -> None:
    """Read with EMLIO, from a daemon or from this host's disks; every record is checked."""
    order = read_order(orders)
    loader = EmlioLoader(order.address, batch_size=order.batch, fields=[IMAGE, LABEL], to="torch", rank=0, world_size=1)
    train_on(loader, order, IMAGE)
