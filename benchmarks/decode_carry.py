"""Pictures that nobody decodes: what it costs to have the records and their labels, batched, in the training process.

Beside decoding, which costs a hundred times as much and whose cost wanders on shared processors, this cannot be seen.

Covers: `EmlioLoader` without a transform, PyTorch's `DataLoader` whose workers hand the bytes on as they are. Does not cover:
decoding (emlio.benchmarks.decode_pillow).
"""

import importlib
from pathlib import Path
from typing import Any

import msgspec

from emlio import EmlioLoader
from emlio.benchmarks.decode_order import IMAGE, LABEL, DecodeOrder, consume
from emlio.benchmarks.decode_pillow import TFRecordImages
from emlio.benchmarks.processes import say

__all__ = ["Bytes", "carry_by_dataloader", "carry_by_loader", "columns"]


class Bytes:
    """A record's features, the picture as bytes: what a pipe between processes can carry."""

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """The features, copied out of the buffer that was read."""
        return {IMAGE: bytes(sample[IMAGE]), LABEL: int(sample[LABEL])}


def columns(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch: the pictures as a list, the labels as one tensor."""
    torch: Any = importlib.import_module("torch")
    return {
        IMAGE: [sample[IMAGE] for sample in samples],
        LABEL: torch.tensor([sample[LABEL] for sample in samples]),
    }


def carry_by_dataloader(orders: bytes) -> None:
    """PyTorch's own loader with worker processes."""
    order = msgspec.json.decode(orders, type=DecodeOrder)
    data: Any = importlib.import_module("torch.utils.data")
    loader = data.DataLoader(
        TFRecordImages(Path(order.directory), Bytes()),
        batch_size=order.batch,
        shuffle=True,
        num_workers=order.threads,
        persistent_workers=True,
        pin_memory=False,
        collate_fn=columns,
    )
    meter = order.meter()
    consume(loader, order, meter, IMAGE)
    say(meter.measurement())


def carry_by_loader(orders: bytes) -> None:
    """Ours: from a daemon, or from this host's disks; every record checked."""
    order = msgspec.json.decode(orders, type=DecodeOrder)
    with EmlioLoader(
        order.address, batch_size=order.batch, fields=[IMAGE, LABEL], to="torch", rank=0, world_size=1
    ) as loader:
        meter = order.meter()
        consume(loader, order, meter, IMAGE)
        say(meter.measurement(loader.stats().first_batch_ns))
