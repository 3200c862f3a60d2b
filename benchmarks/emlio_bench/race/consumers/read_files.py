"""Reads files with PyTorch's DataLoader, in the folders of ImageFolder: one for each class."""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

__all__ = ["Files", "open_source", "prepared"]

_data: Any = import_module("torch.utils.data")
_torch: Any = import_module("torch")
_mounted: Any = import_module("mounted")
_graph: Any = import_module("training_graph")
prepared: Any = _mounted.mounted


class Files:
    """A PyTorch dataset whose items are the bytes of files, or pictures with the numbers in their names."""

    def __init__(self, folder: str, *, decode: bool = False) -> None:
        self._paths: list[str] = _mounted.files_below(folder)
        self._decode = _decoder() if decode else None

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._paths)

    def __getitem__(self, number: int) -> Any:
        """Return the bytes of one file, or its number and its picture."""
        path = self._paths[number]
        if self._decode is not None:
            return int(os.path.basename(path).partition(".")[0]), self._decode(path)
        with open(path, "rb") as file:
            return file.read()


def _decoder() -> Callable[[str], Any]:
    """Return what PyTorch's own ImageNet example does with the file of a picture."""
    image: Any = import_module("PIL.Image")
    transforms: Any = import_module("torchvision.transforms")
    steps = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        ]
    )

    def decode(path: str) -> Any:
        with open(path, "rb") as file:
            return steps(image.open(file).convert("RGB"))

    return decode


def _as_they_are(samples: list[bytes]) -> list[bytes]:
    return samples


@contextmanager
def open_source(order: dict[str, Any]) -> Generator[Callable[[int], Iterator[Sequence[Any]]], None, None]:
    """See emlio_bench.race.consumers.consume."""
    options = order["options"]
    workers = int(options["workers"])
    loader = _data.DataLoader(
        Files(order["url"], decode=order["decode"]),
        batch_size=order["batch"],
        shuffle=True,
        num_workers=workers,
        collate_fn=None if order["decode"] else _as_they_are,
        persistent_workers="persistent" in options and workers > 0,
        prefetch_factor=int(options["ahead"]) if "ahead" in options else None,
        generator=_torch.Generator().manual_seed(order["seed"]),
    )

    def batches(number: int) -> Iterator[Sequence[Any]]:
        if not order["decode"]:
            return iter(loader)
        return (_graph.ids_of(numbers.tolist(), pictures) for numbers, pictures in loader)

    yield batches
