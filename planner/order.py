"""The order of one epoch: which record is at which place.

Covers: the shuffle modes, the derivation of their keys, each mode's arithmetic (blocks:
block_order.py). Does not cover: which rank gets which place (epoch.py).
"""

import hashlib
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, Self, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from emlio.arguments import as_whole
from emlio.errors import ConfigError
from emlio.planner.block_order import BlockOrder
from emlio.planner.permutation import Permutation

__all__ = [
    "DEFAULT_BLOCK_RECORDS",
    "DEFAULT_WINDOW_BLOCKS",
    "PLAN_VERSION",
    "InvertibleOrder",
    "Numbered",
    "Order",
    "RepeatingOrder",
    "Shuffle",
    "ShuffleMode",
    "make_order",
]

PLAN_VERSION: Final = 1
"""Raised whenever the same dataset and spec give another order. Peers and states of different
versions are incompatible."""

DEFAULT_BLOCK_RECORDS: Final = 256
"""One seek per block must be cheap. A rotating disk seeks in about 10 ms and reads 200 MB/s. A
block of 256 photographs of 110 kB takes 140 ms to read, so 93 % of the disk's bandwidth is left;
with records of 10 kB it is still 57 %."""

DEFAULT_WINDOW_BLOCKS: Final = 64
"""A batch of 256 out of 64 blocks has records of 63 blocks on average, from 63 places of the
dataset; a contiguous batch has one. The window, 16,384 records or 1.8 GB of such photographs, must
fit the storage node's page cache, as its blocks are read whole and used over many batches. Twice as
many blocks would need twice the memory."""

_BLOCK_TEXT = re.compile(r"block:([0-9]{1,12}):([0-9]{1,12})")


class ShuffleMode(Enum):
    """The distance that records may move."""

    GLOBAL = "global"
    """Every record can be anywhere."""
    BLOCK = "block"
    """Blocks of records are shuffled, and mixed within a window: long reads, and still a
    mixture."""
    SHARD = "shard"
    """The list of shards is shuffled; within a shard, records keep the file's order."""
    NONE = "none"
    """The order of the dataset in every epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffle:
    """A shuffle mode with its sizes.

    Attributes:
        mode: the mode.
        block_records: records in a block; only mode BLOCK may differ from the default.
        window_blocks: blocks in a window; only mode BLOCK may differ from the default.
    """

    mode: ShuffleMode = ShuffleMode.GLOBAL
    block_records: int = DEFAULT_BLOCK_RECORDS
    window_blocks: int = DEFAULT_WINDOW_BLOCKS

    def __post_init__(self) -> None:
        for name in ("block_records", "window_blocks"):
            size = as_whole(getattr(self, name))
            if size is None:
                raise ConfigError(f"{name} must be a whole number, got {getattr(self, name)!r}")
            object.__setattr__(self, name, size)
        if self.block_records < 1 or self.window_blocks < 1 or self.block_records * self.window_blocks > 2**40:
            raise ConfigError(
                "block_records and window_blocks must be at least 1 and their product at most 2**40, got"
                f" {self.block_records} and {self.window_blocks}"
            )
        # Equal orders must be equal values: sizes without a meaning may not differ.
        if self.mode is not ShuffleMode.BLOCK and (self.block_records, self.window_blocks) != (
            DEFAULT_BLOCK_RECORDS,
            DEFAULT_WINDOW_BLOCKS,
        ):
            raise ConfigError(
                f"block_records and window_blocks may be given with shuffle='block' only, got {self.block_records} and"
                f" {self.window_blocks} with shuffle={self.mode.value!r}"
            )

    def __str__(self) -> str:
        """Return the text that `parse` reads: "global", "block:256:64", "shard" or "none"."""
        if self.mode is ShuffleMode.BLOCK:
            return f"block:{self.block_records}:{self.window_blocks}"
        return str(self.mode.value)

    @property
    def argument(self) -> str:
        """The argument as a user writes it: "shuffle=True" for "global", "shuffle=False" for "none"."""
        usual = Shuffle(mode=self.mode)
        written: object = {ShuffleMode.GLOBAL: True, ShuffleMode.NONE: False}.get(self.mode, self.mode.value)
        return f"shuffle={written!r}" if self == usual else f"shuffle={str(self)!r}"

    @classmethod
    def parse(cls, value: "str | bool | Shuffle") -> Self:
        """Parse a user's value.

        It may be True, False, "global", "block", "block:RECORDS:BLOCKS", "shard" or "none".

        Raises:
            ConfigError: the value is another one; the error lists the choices.
        """
        if isinstance(value, Shuffle):
            return cls(mode=value.mode, block_records=value.block_records, window_blocks=value.window_blocks)
        if isinstance(value, bool | np.bool_):
            return cls(mode=ShuffleMode.GLOBAL if value else ShuffleMode.NONE)
        sizes = _BLOCK_TEXT.fullmatch(value) if isinstance(cast("object", value), str) else None
        if sizes is not None:
            return cls(mode=ShuffleMode.BLOCK, block_records=int(sizes[1]), window_blocks=int(sizes[2]))
        try:
            return cls(mode=ShuffleMode(value))
        except ValueError:
            choices = ", ".join(repr(mode.value) for mode in ShuffleMode)
            raise ConfigError(
                f"shuffle must be True, False, {choices} or 'block:RECORDS:BLOCKS', got {value!r}"
            ) from None


class Order(Protocol):
    """The order of one epoch.

    Immutable, so threads may share it. A look-up costs the same anywhere in the epoch.
    """

    def ids(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the record at each place, in [0, records). The result is a new array."""
        ...


@runtime_checkable
class RepeatingOrder(Protocol):
    """An order in which a record may have several places."""

    def times(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return for each place which time of its record it is, counted from 0."""
        ...


@runtime_checkable
class InvertibleOrder(Protocol):
    """An order that tells where a record is; each has one place."""

    def places(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the place of each record: `places(ids(p)) == p`."""
        ...


class Numbered(Protocol):
    """Records numbered through shards: a catalog, or a part of one."""

    @property
    def records(self) -> int:
        """The number of records."""
        ...

    @property
    def bases(self) -> npt.NDArray[np.int64]:
        """The number of the first record of each shard, and the number of records at the end."""
        ...


class _GlobalOrder:
    __slots__ = ("_permutation",)

    def __init__(self, permutation: Permutation) -> None:
        self._permutation = permutation

    def ids(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._permutation.forward(places)

    def places(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._permutation.inverse(ids)


class _ShardOrder:
    """An order with two numbers per shard.

    They are the place at which the shard begins, and the distance of its ids from their places.
    """

    __slots__ = ("_ahead", "_bases", "_sequence", "_starts")

    def __init__(self, catalog: Numbered, permutation: Permutation) -> None:
        self._bases = catalog.bases
        self._sequence = permutation
        sequence = permutation.forward(np.arange(len(permutation), dtype=np.int64))
        sizes = np.diff(catalog.bases)[sequence]
        self._starts = np.cumsum(sizes) - sizes
        self._ahead = catalog.bases[sequence] - self._starts

    def ids(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        # An empty shard begins where the next one does; from the right, the one with records is
        # found.
        ids: npt.NDArray[np.int64] = places + self._ahead[np.searchsorted(self._starts, places, side="right") - 1]
        return ids

    def places(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        shards = np.searchsorted(self._bases, ids, side="right").astype(np.int64) - 1
        places: npt.NDArray[np.int64] = ids - self._ahead[self._sequence.inverse(shards)]
        return places


class _FileOrder:
    __slots__ = ()

    def ids(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return places.copy()

    places = ids


def _key(seed: int, epoch: int, purpose: str) -> bytes:
    """Return a hash of all arguments.

    With a sum, epoch 1 of one seed would be epoch 0 of the next.
    """
    return hashlib.sha256(f"emlio.plan/{PLAN_VERSION}/{seed}/{epoch}/{purpose}".encode()).digest()


def make_order(catalog: Numbered, shuffle: Shuffle, seed: int, epoch: int) -> Order:
    """Return the order of one epoch, of a dataset or a part of one."""
    match shuffle.mode:
        case ShuffleMode.GLOBAL:
            return _GlobalOrder(Permutation(catalog.records, _key(seed, epoch, "records")))
        case ShuffleMode.BLOCK:
            return BlockOrder(
                records=catalog.records,
                block_records=shuffle.block_records,
                window_blocks=shuffle.window_blocks,
                blocks_key=_key(seed, epoch, "blocks"),
                windows_key=_key(seed, epoch, "windows"),
            )
        case ShuffleMode.SHARD:
            return _ShardOrder(catalog, Permutation(len(catalog.bases) - 1, _key(seed, epoch, "shards")))
        case ShuffleMode.NONE:
            return _FileOrder()
