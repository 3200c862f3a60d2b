"""The sizes of records, from their shard's index.

Covers: the value, collecting those of a whole dataset, locating a record. Does not cover: asking
(emlio.receiver.engine.engine).
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError, PeerLostError
from emlio.planner.catalog import Catalog
from emlio.planner.mixture.merged import own_name, part_of
from emlio.receiver.records.bad_records import RecordPlace
from emlio.receiver.threads.promise import Promise
from emlio.units import format_duration
from emlio.wire.limits import RECORDS_PER_SIZES

__all__ = ["NO_SIZES", "Ask", "RecordSizes", "gather_sizes", "locate_record", "name_record"]

_ANSWER_S = 2.0
"""The time that an error may wait for a daemon to locate the record."""

Ask = Callable[[int, int, int], Promise]
"""Asks for the sizes of some records of a shard, given shard, first record and count; returns a
promise of `RecordSizes`."""


class RecordSizes(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The sizes of consecutive records.

    Attributes:
        offset: the byte of the file at which the first one's frame begins.
        sizes: (n,) bytes of each frame; empty if they could not be found.
    """

    offset: int
    sizes: npt.NDArray[np.int64]

    @property
    def offset_if_known(self) -> int:
        """The offset, or -1 if not known."""
        return self.offset if self.sizes.size else -1


NO_SIZES = RecordSizes(offset=0, sizes=np.zeros(0, np.int64))


def gather_sizes(catalog: Catalog, ask: Ask, timeout_ns: int) -> npt.NDArray[np.int64]:
    """Return the size of every record's frame, by global id.

    All questions are asked at once, so that this takes one round trip and the transfer time.

    Raises:
        DatasetError: a daemon does not know a shard it said it holds.
        PeerLostError: an answer did not come in time.
    """
    sizes = np.empty(catalog.records, np.int64)
    asked: list[tuple[int, int, int, Promise]] = []
    for shard, entry in enumerate(catalog.shards):
        for first in range(0, entry.records, RECORDS_PER_SIZES):
            count = min(RECORDS_PER_SIZES, entry.records - first)
            asked.append((shard, first, count, ask(shard, first, count)))
    for shard, first, count, promise in asked:
        name = catalog.shards[shard].name
        try:
            found: RecordSizes = promise.result(timeout_ns / 1e9)
        except TimeoutError:
            raise PeerLostError(
                f"the sizes of the records of shard {name} did not arrive within {format_duration(timeout_ns)}"
            ) from None
        if len(found.sizes) != count:
            raise DatasetError(
                f"a daemon with shard {name} must send the sizes of its records {first} to {first + count - 1}, got "
                f"{len(found.sizes)}"
            )
        begin = int(catalog.bases[shard]) + first
        sizes[begin : begin + count] = found.sizes
    return sizes


def name_record(catalog: Catalog, record: int, *, datasets: Sequence[str] = ()) -> str:
    """Return the place of a record in words, by its global id; without asking for its offset.

    Args:
        catalog: the catalog.
        record: the id.
        datasets: the names of the datasets of a mixture; none if there is one dataset.
    """
    shards, records = catalog.locate(np.array([record], np.int64))
    shard = _named(catalog.shards[int(shards[0])].name, datasets)
    return RecordPlace(shard=shard, record=int(records[0]), offset=-1).text


def locate_record(catalog: Catalog, ask: Ask, record: int, *, datasets: Sequence[str] = ()) -> RecordPlace:
    """Return the place of a record, by its global id; `datasets` as for `name_record`."""
    shards, records = catalog.locate(np.array([record], np.int64))
    shard, number = int(shards[0]), int(records[0])
    try:
        told: RecordSizes = ask(shard, number, 1).result(_ANSWER_S)
        offset = told.offset_if_known
    except TimeoutError:
        offset = -1  # the error that needs it matters more than the offset
    return RecordPlace(shard=_named(catalog.shards[shard].name, datasets), record=number, offset=offset)


def _named(shard: str, datasets: Sequence[str]) -> str:
    """Return a shard's name as a user knows it."""
    return f"{own_name(shard)} of dataset {datasets[part_of(shard)]}" if datasets else shard
