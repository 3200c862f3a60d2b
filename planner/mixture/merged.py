"""Several datasets as one: the names of their shards, and the part that each has of the merged catalog.

Covers: a shard's name in the merged catalog, the records of each dataset there. Does not cover: joining what daemons hold
(emlio.receiver.assignment.agreement).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog

__all__ = ["Part", "own_name", "part_of", "parts_of", "prefix_of", "shards_with"]


def prefix_of(number: int) -> str:
    """Return what the names of a dataset's shards begin with in the merged catalog: 001/ for dataset 1."""
    return f"{number:03d}/"


def own_name(name: str) -> str:
    """Return a shard's name in its own dataset."""
    return name[len(prefix_of(0)) :]


def part_of(name: str) -> int:
    """Return the number of the dataset of a shard of the merged catalog."""
    return int(name[: len(prefix_of(0)) - 1])


class Part(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The records of one dataset in the merged catalog.

    Attributes:
        first: the id of its first record.
        bases: the number of its records before each of its shards, and of all of them at the end.
    """

    first: int
    bases: npt.NDArray[np.int64]

    @property
    def records(self) -> int:
        """The number of its records."""
        return int(self.bases[-1])


def parts_of(catalog: Catalog, datasets: int) -> tuple[Part, ...]:
    """Return each dataset's part of a merged catalog.

    Raises:
        ConfigError: the catalog is not one of so many datasets, or one of them has no record.
    """
    names = _Names(catalog)
    borders = [bisect_left(names, prefix_of(number)) for number in range(datasets + 1)]
    if borders[0] != 0 or borders[-1] != len(catalog.shards):
        raise ConfigError(f"a mixture of {datasets} datasets must have the shards of these alone, got {_some(catalog)}")
    parts: list[Part] = []
    for number, (begin, end) in enumerate(pairwise(borders)):
        first = int(catalog.bases[begin])
        part = Part(first=first, bases=catalog.bases[begin : end + 1] - first)
        if not part.records:
            raise ConfigError(f"each dataset of a mixture must have records, number {number} has none")
        parts.append(part)
    return tuple(parts)


def shards_with(catalog: Catalog, prefix: str) -> tuple[int, int]:
    """Return the first of a catalog's shards whose names begin with the prefix of a dataset, and the one after the last.

    With an empty prefix these are all shards.
    """
    names, cut = _Names(catalog), len(prefix)
    return bisect_left(names, prefix), bisect_right(names, prefix, key=lambda name: name[:cut])


class _Names(Sequence[str]):
    """The names of a catalog's shards, without a copy."""

    def __init__(self, catalog: Catalog) -> None:
        self._shards = catalog.shards

    def __len__(self) -> int:
        return len(self._shards)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # bisect asks for single items only
        return self._shards[index].name


def _some(catalog: Catalog) -> str:
    names: Iterable[str] = (catalog.shards[0].name, catalog.shards[-1].name)
    return " and ".join(map(repr, names))
