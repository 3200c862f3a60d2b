"""Reads any format with EMLIO, from a daemon: each record's bytes, with its label if it has one."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from emlio import EmlioLoader

__all__ = ["open_source"]

_ID_BYTES = 8


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume."""
    options = order["options"]
    record, label = options["record"], options.get("label", "")
    fields: dict[str, Any] = {"raw": True} if options.get("raw") else {"fields": [record, *([label] if label else [])]}
    with EmlioLoader(
        order["url"],
        batch_size=order["batch"],
        shuffle="global",
        seed=order["seed"],
        rank=0,
        world_size=1,
        epochs=order["epochs"],
        to="numpy",
        **fields,
    ) as loader:

        def batches(number: int) -> Iterator[Sequence[Any]]:
            looked = not label
            for batch in loader:
                records = batch[record]
                if not looked:
                    looked = True
                    _check_labels(records, batch[label], int(options["labels"]))
                # Rows of an array of tokens are handed over as bytes.
                yield records.view("u1") if hasattr(records, "view") else records

        yield batches


def _check_labels(records: Sequence[Any], labels: Any, count: int) -> None:
    wanted = [int.from_bytes(record[:_ID_BYTES], "little") % count for record in records]
    found = [int(label) for label in labels.reshape(-1)]
    if found != wanted:
        raise ValueError(f"each record must come with its own label, {wanted[:4]}..., got {found[:4]}...")
