"""The records of one shard, found and described."""

from collections.abc import Callable
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.format import Format, Layout, Ranges, ShardFiles
from emlio.index.shard_digest import shard_digest
from emlio.store.store import Store

__all__ = ["MadeShard", "ShardMaker"]


class MadeShard(msgspec.Struct, frozen=True, kw_only=True):
    """A shard's records; `ranges` are None where each file is one record."""

    shard: ShardFiles
    ranges: Ranges | None
    records: int
    size_bytes: int
    digest: str

    @classmethod
    def of(
        cls, shard: ShardFiles, ranges: Ranges | None, digest: str, sizes: npt.NDArray[np.int64] | None = None
    ) -> Self:
        """Count the records; `sizes` are those of the files where each is one."""
        if ranges is None:
            assert sizes is not None
            records, size_bytes = len(sizes), int(sizes.sum())
        else:
            records, size_bytes = len(ranges.starts), int((ranges.ends - ranges.starts).sum())
        return cls(shard=shard, ranges=ranges, records=records, size_bytes=size_bytes, digest=digest)


class ShardMaker(msgspec.Struct, frozen=True):
    """Finds the records of shards of one dataset. Thread-safe.

    Attributes:
        chosen: the format.
        store: the files.
        layout: how shards lie in them.
    """

    chosen: Format
    store: Store
    layout: Layout

    def __call__(self, shard: ShardFiles, advance: Callable[[int], None]) -> MadeShard:
        """Return the records of a shard; `advance` is told the bytes that were looked through.

        Raises:
            DatasetError: the shard is invalid, or changes meanwhile.
        """
        store, layout = self.store, self.layout
        sizes = store.sizes[np.asarray(shard.files)]
        ranges = None if shard.whole_files and not shard.unpacked else self.chosen.ranges(store, shard, layout.settings)
        if ranges is not None and ranges.groups is None:
            _check_ranges(ranges, int(sizes[0]), str(store.path(shard.files[0])))
        digest = shard_digest(self.chosen.name, layout.settings, store, layout.labels, shard, ranges)
        if not shard.whole_files and not store.remote:  # answers of a server are compared, one by one
            _check_at_rest(store, shard.files[0])
        advance(int(sizes.sum()))
        return MadeShard.of(shard, ranges, digest, sizes)


def _check_at_rest(store: Store, number: int) -> None:
    try:
        store.check(number)
    except DatasetError as error:
        raise DatasetError(
            f"shard {store.path(number)}: changed while it was indexed. Open the dataset when no process writes to it"
        ) from error


def _check_ranges(ranges: Ranges, size_bytes: int, path: str) -> None:
    if len(ranges.starts) and not (
        int(ranges.starts.min()) >= 0
        and int(ranges.ends.max()) <= size_bytes
        and bool((ranges.starts <= ranges.ends).all())
    ):
        wrong = (ranges.starts < 0) | (ranges.ends > size_bytes) | (ranges.starts > ranges.ends)
        record = int(np.flatnonzero(wrong)[0])
        raise DatasetError(
            f"{path}: record {record} must lie in its {size_bytes} bytes, got bytes {int(ranges.starts[record])} to "
            f"{int(ranges.ends[record])}"
        )
