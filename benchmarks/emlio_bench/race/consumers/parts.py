"""The datasets of a mixture: consecutive parts of the records, each in a folder of its own."""

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

__all__ = ["divided", "weights_of"]


def divided(records: Iterator[bytes], order: dict[str, Any]) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield each folder to write with its records: all in the bucket's, or a folder inside it for each of `sizes`.

    The records of a folder must be taken before the next one is asked for.
    """
    bucket = os.path.join(str(order["out"]), str(order["bucket"]))
    if "sizes" not in order:
        yield bucket, records
        return
    for number, size in enumerate(str(order["sizes"]).split(",")):
        yield os.path.join(bucket, str(number)), islice(records, int(size))


def weights_of(order: dict[str, Any]) -> list[float]:
    """Return the weight of each dataset, by its number; none if there is one dataset only."""
    weights = order["options"].get("weights", "")
    return [float(weight) for weight in weights.split(",")] if weights else []
