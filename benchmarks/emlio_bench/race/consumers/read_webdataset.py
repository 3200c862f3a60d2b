"""Reads with WebDataset, from tar files behind a URL."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

__all__ = ["open_source"]

_BUFFER = 1000
_wds: Any = import_module("webdataset")


def _as_they_are(samples: list[Any]) -> list[Any]:
    return [sample["bin"] for sample in samples]


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume."""
    options, batch = order["options"], order["batch"]
    count = int(options["shards"])
    urls = [f"{order['url']}/{options['shard']}/{number:06d}.tar" for number in range(count)]
    dataset = (
        _wds.WebDataset(urls, shardshuffle=count, seed=order["seed"])
        .shuffle(_BUFFER)
        .batched(batch, collation_fn=_as_they_are, partial=True)
    )
    workers = int(options["workers"])
    loader = _wds.WebLoader(
        dataset, batch_size=None, num_workers=workers, persistent_workers="persistent" in options and workers > 0
    )
    if "mixed" in options:
        loader = loader.unlisted().shuffle(int(options["mixed"])).batched(batch, collation_fn=None, partial=True)

    def batches(number: int) -> Iterator[Sequence[Any]]:
        return iter(loader)

    yield batches
