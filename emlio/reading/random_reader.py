"""Records of a dataset by their numbers, for everything but streams: previews, verification, columns, conversion.

Records are read many at a time, whatever their format and wherever they lie, and handed out one by
one.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.errors import CorruptRecordError
from emlio.formats.plain import checksums_of
from emlio.formats.record_form import fault_of
from emlio.formats.registry import form_of
from emlio.formats.tfrecord.verify import frame_faults
from emlio.index.dataset import Dataset
from emlio.reading.buffers import AheadBudget
from emlio.reading.direct.io_choice import IoMode, choose_io
from emlio.reading.direct.io_settings import IoSettings
from emlio.reading.engine import Reads
from emlio.reading.gather import Gatherer
from emlio.reading.open_engine import open_engine
from emlio.reading.ranges import RangeRead
from emlio.tfrecord import FOOTER_BYTES, HEADER_BYTES

__all__ = ["RandomReader", "Record", "bad_records", "keep_checksums", "spread"]

_Ints = npt.NDArray[np.int64]

_BLOCK_BYTES: Final = 1 << 20
"""Fits the second-level cache, so that a block is still cached when it is checked."""

_MOST_RECORDS: Final = 1024
_AHEAD_BYTES: Final = 64 << 20


def spread(count: int, wanted: int) -> list[int]:
    """Return `wanted` numbers spread evenly over 0..count-1, or all of them if there are fewer."""
    if count <= wanted:
        return list(range(count))
    return [place * (count - 1) // max(wanted - 1, 1) for place in range(wanted)]


class Record(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One record.

    Attributes:
        number: in its shard.
        data: its bytes, without a frame.
        note: what a rank would be told of it beside its bytes.
        fault: what is wrong with its frame or its checksum; "" if nothing is, or it was not compared.
    """

    number: int
    data: memoryview
    note: bytes = b""
    fault: str = ""


class RandomReader:
    """Reads records of a dataset, past the page cache if it exceeds the memory. Thread-safe; the dataset stays open."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        direct = IoSettings() if choose_io(IoMode.AUTO, dataset).direct else None
        self._engine = open_engine(dataset, None, AheadBudget(_AHEAD_BYTES), direct=direct)

    def records(self, shard: int, records: Iterable[int] | None = None, *, compare: bool = False) -> Iterator[Record]:
        """Yield records of a shard.

        Args:
            shard: the number of the shard.
            records: the numbers of the records; None for all.
            compare: whether to compare those without frames with their kept checksums. One that was not known is
                kept from now on. Frames are compared in any case.

        Raises:
            CorruptRecordError: a file lacks a record.
            DatasetError: a file cannot be read, or is not the one that was indexed.
        """
        held = self.dataset.shards[shard]
        numbers = np.arange(held.records) if records is None else np.fromiter(records, np.int64)
        sizes = held.ends[numbers] - held.starts[numbers]
        reads, gatherer = self._engine.reads(), Gatherer()
        try:
            coming = self._blocks(shard, numbers, sizes)
            read = next(coming, None)
            while read is not None:
                after = next(coming, None)
                if after is not None and reads.wants((read, after), gatherer):
                    reads.submit(after, gatherer)
                yield from self._block(read, reads, gatherer, compare=compare)
                read = after
        finally:
            reads.close()

    def _blocks(self, shard: int, numbers: _Ints, sizes: _Ints) -> Iterator[RangeRead]:
        """Yield the reads of records, of some megabytes in all together."""
        held, filled, begin, before = self.dataset.shards[shard], np.cumsum(sizes), 0, 0
        while begin < len(numbers):
            end = int(np.searchsorted(filled, before + _BLOCK_BYTES, side="right"))
            end = min(max(end, begin + 1), begin + _MOST_RECORDS)
            yield RangeRead(
                shard=np.full(end - begin, shard, np.int64),
                record=numbers[begin:end],
                file=held.files_of(numbers[begin:end]),
                starts=np.asarray(held.starts)[numbers[begin:end]],
                sizes=sizes[begin:end],
                size_bytes=int(filled[end - 1]) - before,
            )
            begin, before = end, int(filled[end - 1])

    def record(self, shard: int, number: int) -> Record:
        """Return one record of a shard; see `records`."""
        return next(self.records(shard, (number,)))

    def _block(self, read: RangeRead, reads: Reads, gatherer: Gatherer, *, compare: bool) -> Iterator[Record]:
        dataset, sizes, ends = self.dataset, read.sizes, np.cumsum(read.sizes)
        block = np.empty(read.size_bytes, np.uint8)
        if len(block):
            reads.complete(read, gatherer, block, time.monotonic_ns())
            # No rank compares these bytes: what another process was writing meanwhile must not pass for what was indexed.
            self._engine.confirm(read.file)
        faults = self._faults(read, block.data, compare=compare)
        notes: Sequence[bytes] = () if dataset.notes is None else dataset.notes(int(read.shard[0]), read.record)
        header, footer = (HEADER_BYTES, FOOTER_BYTES) if dataset.framed else (0, 0)
        for place, (number, begin, end) in enumerate(
            zip(read.record.tolist(), (ends - sizes).tolist(), ends.tolist(), strict=True)
        ):
            yield Record(
                number=number,
                data=block.data[begin + header : end - footer],
                note=notes[place] if notes else b"",
                fault=faults.get(place, ""),
            )

    def _faults(self, read: RangeRead, data: memoryview, *, compare: bool) -> dict[int, str]:
        checksums = self.dataset.checksums
        if checksums is None:
            return frame_faults(data, np.concatenate([[0], np.cumsum(read.sizes)]))
        if not compare:
            return {}
        wanted, found = checksums.of(read.shard, read.record, read.sizes, data), checksums_of(data, read.sizes)
        return {
            place: f"the CRC32C of its {int(read.sizes[place])} bytes must be {int(wanted[place]):#010x} as first read, "
            f"is {int(found[place]):#010x}"
            for place in np.flatnonzero(wanted != found).tolist()
        }

    def error(self, shard: int, number: int, reason: str) -> CorruptRecordError:
        """Return the error for a record."""
        path, offset = self.dataset.where(shard, number)
        return CorruptRecordError(
            f"{path}: record {number} at offset {offset}: {reason}",
            shard=self.dataset.shards[shard].name,
            record=number,
            offset=offset,
        )

    def close(self) -> None:
        """Close what is open. Closing again does nothing."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def keep_checksums(reader: RandomReader, shard: int, progress: Callable[[int], None]) -> int:
    """Read the records of a shard whose checksum is not known, and keep it; return how many there were.

    Raises:
        DatasetError: a file cannot be read.
    """
    checksums = reader.dataset.checksums
    if checksums is None:
        return 0
    all_records = np.arange(reader.dataset.shards[shard].records)
    unknown = np.flatnonzero(~checksums.known(np.full(len(all_records), shard, np.int64), all_records)).tolist()
    for record in reader.records(shard, unknown, compare=True):
        progress(len(record.data))
    return len(unknown)


def bad_records(reader: RandomReader, shard: int, progress: Callable[[int], None]) -> Iterator[CorruptRecordError]:
    """Yield an error for every record of a shard that differs from its checksums, or cannot be decoded.

    Framed records are not decoded: their frames tell whether they are as they were written.

    Raises:
        DatasetError: a file cannot be read.
    """
    form = None if reader.dataset.framed else form_of(reader.dataset.contents, None)
    for record in reader.records(shard, compare=True):
        fault = record.fault or ("" if form is None else fault_of(form, record.data, record.note))
        if fault:
            yield reader.error(shard, record.number, fault)
        progress(len(record.data))
