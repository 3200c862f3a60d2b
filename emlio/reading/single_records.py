"""Reading single records of a dataset, wherever they lie in it."""

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c
from emlio.clock import Clock
from emlio.errors import DatasetError
from emlio.formats.notes import find_notes
from emlio.reading.engine import ReadEngine, Reads
from emlio.reading.gather import Gatherer
from emlio.reading.message_planner import notes_of
from emlio.reading.ranges import RangeRead
from emlio.wire.limits import MAX_PAYLOAD_BYTES

__all__ = ["FoundRecords", "find_records"]


class FoundRecords(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The first of the requested records, or a part of the first one.

    Attributes:
        sizes: (n,) the whole size of each, with its frame if it has one.
        crcs: (n,) the CRC32C that each must have; empty for framed records.
        payload: their bytes.
        notes: what ranks are told of them beside their bytes, packed.
    """

    sizes: npt.NDArray[np.int64]
    crcs: npt.NDArray[np.uint32]
    payload: npt.NDArray[np.uint8]
    notes: bytes

    def split_notes(self) -> list[bytes]:
        """Return what is told of each record; nothing if there are no notes."""
        if not self.notes:
            return []
        bounds: list[list[int]] = find_notes(memoryview(self.notes), len(self.notes), len(self.sizes)).tolist()
        return [self.notes[begin:end] for begin, end in bounds]


def find_records(
    engine: ReadEngine,
    clock: Clock,
    shards: npt.NDArray[np.int64],
    records: npt.NDArray[np.int64],
    *,
    offset: int,
    most_bytes: int,
) -> FoundRecords:
    """Read records: as many whole ones as fit, or a part of the first one if it does not fit alone.

    A record that cannot be read ends the answer before it; as the first one it is the error.

    Args:
        engine: reads the dataset's files.
        clock: for the age of checks.
        shards: (n,) which of the dataset's shards each record lies in.
        records: (n,) its number in that shard.
        offset: where in the first record to begin; not 0 for a single record only.
        most_bytes: the most bytes to read.

    Raises:
        DatasetError: the first record cannot be read.
    """
    finder = _Finder(engine, clock, engine.reads(), Gatherer())
    try:
        try:
            return finder.find(shards, records, offset, most_bytes)
        except DatasetError:
            if len(records) == 1:
                raise
            # The first one alone: it is either good, or the one to blame.
            return finder.find(shards[:1], records[:1], offset, most_bytes)
    finally:
        finder.reads.close()


class _Finder(msgspec.Struct, frozen=True, eq=False):
    engine: ReadEngine
    clock: Clock
    reads: Reads
    gatherer: Gatherer

    def find(
        self, shards: npt.NDArray[np.int64], records: npt.NDArray[np.int64], offset: int, most_bytes: int
    ) -> FoundRecords:
        dataset = self.engine.dataset
        files, starts, ends = dataset.locate(shards, records)
        sizes = ends - starts
        count = int(np.searchsorted(np.cumsum(sizes), most_bytes, side="right"))
        first = int(sizes[0])
        if first > MAX_PAYLOAD_BYTES:
            raise DatasetError(
                f"a record must have at most {MAX_PAYLOAD_BYTES:,} bytes with its frame to be sent, record "
                f"{int(records[0])} of {dataset.files.path(int(files[0]))} has {first:,}"
            )
        if not 0 <= offset <= first:
            raise DatasetError(f"a record of {first} bytes must be read from a byte inside it, got byte {offset}")
        if count == 0 or offset:
            read = _part(shards[:1], records[:1], files[:1], starts[:1] + offset, sizes[:1] - offset, most_bytes)
            payload = self._read(read)
            crcs = self._crc_of_part(read, payload, int(starts[0]), first, most_bytes)
            sizes = sizes[:1]
        else:
            part = slice(count)
            read = _part(shards[part], records[part], files[part], starts[part], sizes[part], most_bytes)
            payload = self._read(read)
            sizes, crcs = sizes[part], self._crcs(read, payload)
        return FoundRecords(sizes=sizes, crcs=crcs, payload=payload, notes=notes_of(dataset, read.shard, read.record))

    def _read(self, read: RangeRead) -> npt.NDArray[np.uint8]:
        out = np.empty(read.size_bytes, np.uint8)
        if read.size_bytes:
            self.reads.complete(read, self.gatherer, out, self.clock.monotonic_ns())
        return out

    def _crcs(self, read: RangeRead, payload: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
        checksums = self.engine.dataset.checksums
        if checksums is None:
            return np.zeros(0, np.uint32)
        if not checksums.known(read.shard, read.record).all():
            # The checksum is kept: it must not be of bytes that another process was writing.
            self.engine.confirm(read.file)
        return checksums.of(read.shard, read.record, read.sizes, payload.data)

    def _crc_of_part(
        self, read: RangeRead, payload: npt.NDArray[np.uint8], start: int, size_bytes: int, most_bytes: int
    ) -> npt.NDArray[np.uint32]:
        """Return the checksum of a whole record; one that is not known is computed part by part."""
        checksums = self.engine.dataset.checksums
        if checksums is None:
            return np.zeros(0, np.uint32)
        if checksums.known(read.shard, read.record).all():
            return checksums.of(read.shard, read.record, read.sizes, payload.data)
        crc, at = 0, 0
        while at < size_bytes:
            rest = np.array([size_bytes - at], np.int64)
            begin = np.array([start + at], np.int64)
            part = self._read(_part(read.shard, read.record, read.file, begin, rest, most_bytes))
            crc, at = crc32c(part.data, crc), at + len(part)
        self.engine.confirm(read.file)
        return checksums.keep(read.shard, read.record, np.array([crc], np.uint32))


def _part(
    shards: npt.NDArray[np.int64],
    records: npt.NDArray[np.int64],
    files: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    most_bytes: int,
) -> RangeRead:
    """Return the read of these records; a single one is cut to fit."""
    cut = np.minimum(sizes, most_bytes) if len(sizes) == 1 else sizes
    return RangeRead(shard=shards, record=records, file=files, starts=starts, sizes=cut, size_bytes=int(cut.sum()))
