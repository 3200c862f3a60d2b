"""Detection of record positions in a TFRecord file.

There are two methods. Small records are found in blocks that are read one after the other. For
large records only the 16 bytes between the data of two records are read: the footer of one and the
header of the next.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c
from emlio.errors import CorruptRecordError, DatasetError
from emlio.open_limits import is_used_up, refusal_of
from emlio.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES

__all__ = ["Framing", "mask_crcs", "masked_length_crcs", "overlapping", "scan", "scan_file"]

_Number = TypeVar("_Number", bound=np.generic)
_LENGTH_BYTES = 8
_MASK_DELTA = np.uint32(0xA282EAD8)


@cache
def _tables() -> tuple[np.uint32, npt.NDArray[np.uint32]]:
    """Return the checksum of eight zero bytes, and the effect of each byte value at each position.

    A CRC is linear: the checksum of a length is that of zero, XORed with one table entry for each
    byte.
    """
    zero = crc32c(bytes(_LENGTH_BYTES))
    rows = [
        [crc32c((value << (8 * place)).to_bytes(_LENGTH_BYTES, "little")) ^ zero for value in range(256)]
        for place in range(_LENGTH_BYTES)
    ]
    return np.uint32(zero), np.array(rows, dtype=np.uint32)


def mask_crcs(crcs: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Mask checksums as TFRecord stores them."""
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + _MASK_DELTA


def masked_length_crcs(lengths: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """Return the stored length checksum of records with these lengths."""
    zero, tables = _tables()
    crcs = np.full(lengths.shape, zero, dtype=np.uint32)
    used = (int(lengths.max(initial=0)).bit_length() + 7) // 8
    for place in range(used):  # higher bytes are zero in every length and have no effect
        crcs ^= tables[place][(lengths >> np.uint64(8 * place)) & np.uint64(0xFF)]
    return mask_crcs(crcs)


def overlapping(block: bytearray | memoryview, dtype: np.dtype[_Number]) -> npt.NDArray[_Number]:
    """Return the number that begins at each byte of `block`, without a copy.

    Index the result with byte positions.
    """
    places = max(memoryview(block).nbytes - dtype.itemsize + 1, 0)
    if places == 0:
        return np.empty(0, dtype=dtype)
    return np.ndarray(shape=(places,), dtype=dtype, buffer=block, strides=(1,))


_BLOCK_BYTES = 1 << 20
"""Fits the second-level cache, so the block is still cached while it is walked."""

_HOP_BYTES = 64 << 10
"""The mean record size from which hopping is faster.

With a warm page cache it is faster from 8 KiB. With a cold one, a hop costs a disk's latency (60 µs
measured, shared by the threads that scan other shards) and a block costs its bandwidth; these are
about equal near this size.
"""

_HOPS = 256
"""Hops between two checks of the mean size. A run of small records soon returns to blocks."""

_LENGTH = struct.Struct("<Q")
_BETWEEN = np.dtype([("data_crc", "<u4"), ("length", "<u8"), ("length_crc", "<u4")])
_GZIP_MAGIC = b"\x1f\x8b"
_ZLIB_MAGICS = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Framing:
    """The result of a scan.

    Attributes:
        offsets: start of each record's frame, and finally the file's size; int64, one more than
            records.
        data_crcs: the masked CRC32C stored after each record's data; uint32.
    """

    offsets: npt.NDArray[np.int64]
    data_crcs: npt.NDArray[np.uint32]

    @property
    def records(self) -> int:
        """The number of records in the file."""
        return len(self.data_crcs)


def scan(path: Path, progress: Callable[[int], None] | None = None) -> Framing:
    """Find every record of a TFRecord file; see `scan_file`.

    Args:
        path: the file.
        progress: called with the number of bytes that each step covered.

    Raises:
        CorruptRecordError: as `scan_file`.
        DatasetError: as `scan_file`, or the file cannot be opened.
    """
    try:
        file = path.open("rb", buffering=0)
        size_bytes = path.stat().st_size
    except OSError as error:
        raise refusal_of(error, str(path)) or DatasetError(
            f"{path}: cannot be opened: {error.strerror or error}"
        ) from error
    with file:
        remedy = f"emlio convert {path.parent} {path.parent}-emlio"
        return scan_file(file, size_bytes, str(path), path.name, progress, remedy=remedy)


def scan_file(
    file: IO[bytes],
    size_bytes: int,
    shown: str,
    shard: str,
    progress: Callable[[int], None] | None = None,
    *,
    remedy: str = "emlio convert SOURCE TARGET",
) -> Framing:
    """Find every record of a TFRecord file. An empty file holds none.

    Args:
        file: the file, open without a buffer.
        size_bytes: its size.
        shown: its path or address, for errors.
        shard: its name.
        progress: see `scan`.
        remedy: the command that makes uncompressed files of compressed ones.

    Raises:
        CorruptRecordError: a length's checksum is wrong, or the file ends inside a record.
        DatasetError: the file is compressed, or cannot be read.
    """
    walk = _Walk(file, size_bytes, shown, shard, progress, remedy)
    while walk.position < walk.size_bytes:
        mean = walk.block()
        while mean >= _HOP_BYTES and walk.position < walk.size_bytes:
            mean = walk.hops()
    return walk.framing()


class _Walk:
    """One walk through one file. Not thread-safe."""

    def __init__(
        self,
        file: IO[bytes],
        size_bytes: int,
        shown: str,
        shard: str,
        progress: Callable[[int], None] | None,
        remedy: str,
    ) -> None:
        self._file: Any = file
        self._path = shown
        self._shard = shard
        self._remedy = remedy
        self._progress = progress
        self.size_bytes = size_bytes
        self.position = 0
        self._records = 0
        self._starts: list[npt.NDArray[np.int64]] = []
        self._crcs: list[npt.NDArray[np.uint32]] = []
        self._buffer = bytearray(min(_BLOCK_BYTES, self.size_bytes))
        # Unaligned numbers at any place of the block, read without a Python call for each.
        self._u32 = overlapping(self._buffer, np.dtype("<u4"))
        self._u64 = overlapping(self._buffer, np.dtype("<u8"))

    def framing(self) -> Framing:
        """Return the records found so far."""
        end = np.array([self.position], dtype=np.int64)
        crcs = np.concatenate(self._crcs) if self._crcs else np.empty(0, dtype=np.uint32)
        return Framing(offsets=np.concatenate([*self._starts, end]), data_crcs=crcs)

    def block(self) -> float:
        """Read one block, find the records completely inside it, and return their mean size."""
        wanted = min(_BLOCK_BYTES, self.size_bytes - self.position)
        filled = self._read(memoryview(self._buffer)[:wanted], self.position)
        if filled < wanted:
            raise self._shrank(self.position + filled)
        places: list[int] = []
        at, last_header = 0, wanted - HEADER_BYTES
        buffer, unpack, found = self._buffer, _LENGTH.unpack_from, places.append
        while at <= last_header:  # the only Python step per record: keep this loop minimal
            found(at)
            at += unpack(buffer, at)[0] + FRAME_BYTES
        if not places:
            raise self._cut(self._records, self.position, HEADER_BYTES, "header")
        starts = np.array(places, dtype=np.int64)
        self._check_lengths(starts + self.position, self._u64[starts], self._u32[starts + _LENGTH.size])
        if at > wanted:
            if self.position + at > self.size_bytes:
                raise self._cut(self._records + len(places) - 1, self.position + places[-1], at - places[-1], "frame")
            at = places[-1]
            starts = starts[:-1]
        ends = np.append(starts[1:], at)[: len(starts)]
        self._keep(starts + self.position, self._u32[ends - FOOTER_BYTES], self.position + at)
        return at / len(starts) if len(starts) else float("inf")

    def hops(self) -> float:
        """Find a few records by reading only between their data, and return their mean size."""
        begin = at = self.position
        between = [bytes(FOOTER_BYTES) + self._header(at, self._records)]
        starts: list[int] = []
        cut = False
        for _ in range(_HOPS):
            starts.append(at)
            at += _LENGTH.unpack_from(between[-1], FOOTER_BYTES)[0] + FRAME_BYTES
            if at > self.size_bytes:
                cut = True
                break
            step = self._read_at(FRAME_BYTES, at - FOOTER_BYTES)
            between.append(step.ljust(FRAME_BYTES, b"\0"))
            if len(step) < FRAME_BYTES:  # the file's end, or a truncated header that the next step reports
                if len(step) < FOOTER_BYTES:
                    raise self._shrank(at - FOOTER_BYTES + len(step))
                break
        found = np.frombuffer(b"".join(between), dtype=_BETWEEN)
        headers = found[: len(starts)]
        self._check_lengths(np.array(starts, dtype=np.int64), headers["length"], headers["length_crc"])
        if cut:
            raise self._cut(self._records + len(starts) - 1, starts[-1], at - starts[-1], "frame")
        self._keep(np.array(starts, dtype=np.int64), found["data_crc"][1:].astype(np.uint32), at)
        return (at - begin) / len(starts)

    def _read(self, buffer: memoryview, offset: int) -> int:
        """Fill a buffer from an offset on; return the number of bytes, fewer only at the end."""
        done = 0
        try:
            self._file.seek(offset)
            while done < len(buffer) and (got := self._file.readinto(buffer[done:])):
                done += got
        except OSError as error:
            raise self._failed(len(buffer), offset, error) from error
        return done

    def _read_at(self, length: int, offset: int) -> bytes:
        try:
            self._file.seek(offset)
            data: bytes = self._file.read(length)
        except OSError as error:
            raise self._failed(length, offset, error) from error
        return data

    def _failed(self, length: int, offset: int, error: OSError) -> DatasetError:
        return DatasetError(
            f"{self._path}: reading {length} bytes at offset {offset} failed: {error.strerror or error}",
            passing=is_used_up(error),
        )

    def _header(self, at: int, record: int) -> bytes:
        header = self._read_at(HEADER_BYTES, at)
        if len(header) < HEADER_BYTES:
            raise self._cut(record, at, HEADER_BYTES, "header")
        return header

    def _keep(self, starts: npt.NDArray[np.int64], crcs: npt.NDArray[np.uint32], end: int) -> None:
        self._starts.append(starts)
        self._crcs.append(crcs)
        self._records += len(starts)
        if self._progress is not None:
            self._progress(end - self.position)
        self.position = end

    def _check_lengths(
        self, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.uint64], stored: npt.NDArray[np.uint32]
    ) -> None:
        expected = masked_length_crcs(lengths)
        bad = np.flatnonzero(expected != stored)
        if len(bad) == 0:
            return
        first = int(bad[0])
        record, offset = self._records + first, int(starts[first])
        self._refuse_compressed(record)
        raise CorruptRecordError(
            f"{self._path}: record {record} at offset {offset}: the masked CRC32C of the length "
            f"{int(lengths[first])} must be {int(expected[first]):#010x}, stored is {int(stored[first]):#010x}",
            shard=self._shard,
            record=record,
            offset=offset,
        )

    def _cut(self, record: int, offset: int, needed: int, part: str) -> DatasetError:
        self._refuse_compressed(record)
        return CorruptRecordError(
            f"{self._path}: record {record} at offset {offset}: its {part} needs {needed} bytes, "
            f"{self.size_bytes - offset} are left before the file's end at {self.size_bytes}: the file is truncated",
            shard=self._shard,
            record=record,
            offset=offset,
        )

    def _shrank(self, end: int) -> DatasetError:
        return DatasetError(
            f"{self._path}: had {self.size_bytes} bytes when it was opened and ends at {end} now: another process is "
            "changing it"
        )

    def _refuse_compressed(self, record: int) -> None:
        """Raise an error that names the compression, if the file is compressed.

        It is called when a header is wrong; only the very first header can show compression.
        """
        if record != 0:
            return
        magic = self._read_at(2, 0)
        kind = "gzip" if magic == _GZIP_MAGIC else "zlib" if magic in _ZLIB_MAGICS else None
        if kind is not None:
            raise DatasetError(
                f"{self._path}: compressed with {kind}, compressed TFRecord files cannot be served. Convert it once: "
                f"{self._remedy}"
            )
