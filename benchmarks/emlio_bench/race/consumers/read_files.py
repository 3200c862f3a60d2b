"""Reads files with PyTorch's DataLoader, in the folders of ImageFolder: one for each class.

Covers: listing, reading in workers. Does not cover: decoding.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

__all__ = ["Files", "open_source", "prepared"]

_data: Any = import_module("torch.utils.data")
_torch: Any = import_module("torch")
_mounted: Any = import_module("mounted")
prepared: Any = _mounted.mounted


class Files:
    """A PyTorch dataset whose items are the bytes of files."""

    def __init__(self, folder: str) -> None:
        self._paths: list[str] = _mounted.files_below(folder)

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._paths)

    def __getitem__(self, number: int) -> bytes:
        """Return the bytes of one file."""
        with open(self._paths[number], "rb") as file:
            return file.read()


def _as_they_are(samples: list[bytes]) -> list[bytes]:
    return samples


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume."""
    options = order["options"]
    workers = int(options["workers"])
    loader = _data.DataLoader(
        Files(order["url"]),
        batch_size=order["batch"],
        shuffle=True,
        num_workers=workers,
        collate_fn=_as_they_are,
        persistent_workers="persistent" in options and workers > 0,
        prefetch_factor=int(options["ahead"]) if "ahead" in options else None,
        generator=_torch.Generator().manual_seed(order["seed"]),
    )

    def batches(number: int) -> Iterator[Sequence[Any]]:
        return iter(loader)

    yield batches
