"""Pictures without decoding: the cost of records and labels, batched, in the training process.

Beside decoding this cost would not be visible: decoding costs a hundred times as much, and its cost
varies on shared processors.

Covers: `EmlioLoader` without a transform, PyTorch's `DataLoader` whose workers return the bytes
unchanged. Does not cover: decoding (emlio_bench.decode.pillow).
"""

import importlib
from pathlib import Path
from typing import Any

import msgspec

from emlio import EmlioLoader
from emlio_bench.decode.order import IMAGE, LABEL, DecodeOrder, consume
from emlio_bench.decode.pillow import TFRecordImages
from emlio_bench.processes.child import say

__all__ = ["Bytes", "carry_by_dataloader", "carry_by_loader", "columns"]


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
    """Read with EMLIO, from a daemon or from this host's disks; every record is checked."""
    order = msgspec.json.decode(orders, type=DecodeOrder)
    with EmlioLoader(
        order.address, batch_size=order.batch, fields=[IMAGE, LABEL], to="torch", rank=0, world_size=1
    ) as loader:
        meter = order.meter()
        consume(loader, order, meter, IMAGE)
        say(meter.measurement(loader.stats().first_batch_ns))
