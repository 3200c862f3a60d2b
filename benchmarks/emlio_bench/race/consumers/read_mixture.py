"""Reads a mixture of datasets with EMLIO, from a daemon."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from emlio import EmlioLoader, Mixture

__all__ = ["open_source"]

_parts: Any = import_module("parts")


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume."""
    sources = list(zip(order["url"].split(), _parts.weights_of(order), strict=True))
    with EmlioLoader(
        Mixture(sources, samples=int(order["options"]["samples"])),
        batch_size=order["batch"],
        shuffle="global",
        seed=order["seed"],
        rank=0,
        world_size=1,
        epochs=order["epochs"],
        to="numpy",
        raw=True,
    ) as loader:

        def batches(number: int) -> Iterator[Sequence[Any]]:
            for batch in loader:
                yield batch["record"]

        yield batches
