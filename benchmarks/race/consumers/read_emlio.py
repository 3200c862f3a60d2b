"""Reads with EMLIO, from a daemon or from a directory.

Covers: the loader as a training script makes it. Does not cover: the paper's way.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from emlio import EmlioLoader

__all__ = ["open_source"]


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio.benchmarks.race.consumers.consume."""
    with EmlioLoader(
        order["url"],
        batch_size=order["batch"],
        shuffle=order["options"].get("shuffle", "global"),
        seed=order["seed"],
        raw=True,
        to="numpy",
        rank=0,
        world_size=1,
    ) as loader:

        def batches(number: int) -> Iterator[Sequence[Any]]:
            for batch in loader:
                yield batch["record"]

        yield batches
