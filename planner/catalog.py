"""The catalog of a dataset: shards by name, and records numbered through all of them.

Covers: the numbering (record ids), the fingerprint, finding a record's shard. Does not cover: which
daemons hold a shard (owners.py), reading shards.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.planner.permutation import LARGEST
from emlio.wire.control import ShardRow

__all__ = ["Catalog", "ShardEntry"]

_MOST_BUCKETS: Final = 2**16
"""At most 512 KiB for the look-up table: it should stay in the second-level cache."""

_MOST_STEPS: Final = 4
"""If more shards than this begin within one bucket, bisection is as fast as stepping from shard to
shard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """One shard in the plan.

    Attributes:
        name: its name, unique in the dataset; the dataset is ordered by these names.
        records: the number of its records; may be 0.
        size_bytes: the size of the file, by which daemons share the work.
        digest: identifies the content, among other contents of the same name.
    """

    name: str
    records: int
    size_bytes: int
    digest: str

    @staticmethod
    def of(row: ShardRow) -> "ShardEntry":
        """Return the shard that a row of a list of shards describes."""
        return ShardEntry(name=row.name, records=row.records, size_bytes=row.size_bytes, digest=row.digest)

    @property
    def row(self) -> ShardRow:
        """The shard's row in a list of shards."""
        return ShardRow(name=self.name, records=self.records, size_bytes=self.size_bytes, digest=self.digest)

    def __post_init__(self) -> None:
        if not self.name:
            raise DatasetError("a shard's name must not be empty")
        if self.records < 0 or self.size_bytes < 0:
            raise DatasetError(
                f"shard {self.name!r}: records and size_bytes must not be negative, got {self.records} and"
                f" {self.size_bytes}"
            )


class _Buckets(msgspec.Struct, frozen=True, kw_only=True):
    """A table that finds the shard of an id by one look-up and a few steps.

    Bisection takes ten mispredicted branches instead.

    Attributes:
        shift: an id's bucket is `id >> shift`.
        first: for each bucket, the non-empty shard that holds its first id.
        ends: for each non-empty shard, the first id after it.
        numbers: the indexes of the non-empty shards in the catalog.
        steps: the most shards that begin inside one bucket; the number of steps to take.
    """

    shift: int
    first: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    steps: int


def _make_buckets(bases: npt.NDArray[np.int64]) -> _Buckets:
    numbers = np.flatnonzero(np.diff(bases)).astype(np.int64)
    ends = bases[numbers + 1]
    total = int(bases[-1])
    wanted = min(4 * numbers.size, _MOST_BUCKETS)
    shift = max((total // wanted).bit_length() - 1, 0)
    while (total - 1) >> shift >= _MOST_BUCKETS:
        shift += 1
    starts = np.arange(((total - 1) >> shift) + 1, dtype=np.int64) << shift
    first = np.searchsorted(ends, starts, side="right").astype(np.int64)
    lasts = np.minimum(starts + (1 << shift), total) - 1
    steps = int((np.searchsorted(ends, lasts, side="right") - first).max())
    return _Buckets(shift=shift, first=first, ends=ends, numbers=numbers, steps=steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The shards of one dataset; record ids run through them in the order of their names.

    Attributes:
        shards: sorted by name, each name once, with at least one record in all.
        bases: the first id of each shard, and the number of records at the end.
        fingerprint: 32 hex digits; equal for equal shards, on every machine.
    """

    shards: tuple[ShardEntry, ...]
    bases: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)
    fingerprint: str = field(init=False, compare=False)
    _buckets: _Buckets = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for before, after in zip(self.shards, self.shards[1:], strict=False):
            if before.name >= after.name:
                raise DatasetError(
                    f"shards must be sorted by name, each name once, got {before.name!r} before {after.name!r}"
                )
        records = sum(entry.records for entry in self.shards)
        if not 1 <= records <= LARGEST:
            raise DatasetError(
                f"a dataset must hold 1 to {LARGEST} records, got {records} in {len(self.shards)} shard(s)"
            )
        bases = np.zeros(len(self.shards) + 1, dtype=np.int64)
        np.cumsum([entry.records for entry in self.shards], out=bases[1:])
        bases.flags.writeable = False
        object.__setattr__(self, "bases", bases)
        object.__setattr__(self, "fingerprint", _fingerprint(self.shards))
        object.__setattr__(self, "_buckets", _make_buckets(bases))

    @property
    def records(self) -> int:
        """The number of records."""
        return int(self.bases[-1])

    def shards_of(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the index in `shards` of the shard that holds each record.

        Args:
            ids: record ids, in [0, records).
        """
        buckets = self._buckets
        # As unsigned, a negative number is huge: one comparison checks both ends.
        if ids.size and int(ids.view(np.uint64).max()) >= self.records:
            raise ConfigError(f"record ids must be in [0, {self.records}), got {int(ids.min())} to {int(ids.max())}")
        if buckets.steps > _MOST_STEPS:
            found = np.searchsorted(buckets.ends, ids, side="right").astype(np.int64, copy=False)
        else:
            found = buckets.first[ids >> buckets.shift]
            for _ in range(buckets.steps):
                found += ids >= buckets.ends[found]
        return found if buckets.numbers.size == len(self.shards) else buckets.numbers[found]

    def locate(self, ids: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the position of each record.

        Args:
            ids: record ids, in [0, records).

        Returns:
            The index of each record's shard, and its number within the shard.
        """
        shards = self.shards_of(ids)
        return shards, ids - self.bases[shards]


def _fingerprint(shards: tuple[ShardEntry, ...]) -> str:
    """Return a hash of all fields, each text with its length before it.

    So different lists of shards never give the same bytes.
    """
    state = hashlib.blake2b(b"emlio.catalog/1/%d" % len(shards), digest_size=16)
    for entry in shards:
        for text in (entry.name, entry.digest):
            encoded = text.encode()
            state.update(len(encoded).to_bytes(8, "little") + encoded)
        state.update(entry.records.to_bytes(8, "little") + entry.size_bytes.to_bytes(8, "little"))
    return state.hexdigest()
