"""Pictures without decoding: the cost of records and labels, batched, in the training process.

Beside decoding this cost would not be visible: decoding costs a hundred times as much, and its cost
varies on shared processors.
"""

import importlib
from typing import Any

from emlio import EmlioLoader
from emlio_bench.decode.order import IMAGE, LABEL, read_order, train_on
from emlio_bench.decode.pillow import data_loader

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
    order = read_order(orders)
    train_on(data_loader(order, Bytes(), collate_fn=columns), order, IMAGE)


def carry_by_loader(orders: bytes) -> None:
    """Read with EMLIO, from a daemon or from this host's disks; every record is checked."""
    order = read_order(orders)
    loader = EmlioLoader(order.address, batch_size=order.batch, fields=[IMAGE, LABEL], to="torch", rank=0, world_size=1)
    train_on(loader, order, IMAGE)
