"""Verification of the records of an indexed file.

Covers: checking every record's length and data checksum, in big blocks; reading and checking a few
records. Does not cover: finding records (emlio.shards.tfrecord.scan), handling a bad one, reading
records in order to send them.
"""

import io
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c, mask
from emlio.errors import CorruptRecordError, DatasetError
from emlio.shards.files.file_read import read_into
from emlio.shards.tfrecord.frame_numbers import mask_crcs, masked_length_crcs, overlapping
from emlio.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES

__all__ = ["bad_records", "read_records", "verify_records"]

_BLOCK_BYTES = 1 << 20
_LENGTH_BYTES = 8
_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")


def verify_records(path: Path, offsets: npt.NDArray[np.int64], progress: Callable[[int], None] | None = None) -> None:
    """Check every record.

    Args:
        path: the shard's file.
        offsets: its index: the start of each frame, and finally the file's size.
        progress: called with the number of bytes that each step checked.

    Raises:
        CorruptRecordError: for the first corrupt record.
        DatasetError: the file cannot be read.
    """
    for error in bad_records(path, offsets, progress):
        raise error


def bad_records(
    path: Path, offsets: npt.NDArray[np.int64], progress: Callable[[int], None] | None = None
) -> Iterator[CorruptRecordError]:
    """Yield an error for every corrupt record, in order; arguments as `verify_records`.

    Raises:
        DatasetError: the file cannot be read.
    """
    records = len(offsets) - 1
    with _opened(path) as file:
        buffer = bytearray(_BLOCK_BYTES)
        first = 0
        while first < records:
            begin = int(offsets[first])
            # As many complete records as fit into the block; a larger record gets a block of its
            # own size.
            after = max(int(np.searchsorted(offsets, begin + _BLOCK_BYTES, side="right")) - 1, first + 1)
            size = int(offsets[after]) - begin
            if size > len(buffer):
                buffer = bytearray(size)
            view = memoryview(buffer)[:size]
            filled = read_into(file.fileno(), view, begin, path)
            bounds = offsets[first : after + 1] - begin
            for place in _suspects(view, bounds, filled):
                start, end = int(bounds[place]), int(bounds[place + 1])
                reason = _fault(view[start:end]) if end <= filled else f"the file ends at {begin + filled}"
                yield _corrupt(path, first + place, begin + start, reason)
            if progress is not None:
                progress(size)
            first = after


def read_records(path: Path, offsets: npt.NDArray[np.int64], records: Iterable[int]) -> Iterator[bytes]:
    """Yield the data of a few records, each read separately and checked.

    Raises:
        CorruptRecordError: a record is corrupt.
        DatasetError: the file cannot be read.
    """
    with _opened(path) as file:
        for record in records:
            start, end = int(offsets[record]), int(offsets[record + 1])
            framed = memoryview(bytearray(end - start))
            filled = read_into(file.fileno(), framed, start, path)
            if filled < len(framed):
                raise _corrupt(path, record, start, f"the file ends at {start + filled}")
            if _suspects(framed, np.array([0, len(framed)], dtype=np.int64), filled):
                raise _corrupt(path, record, start, _fault(framed))
            yield bytes(framed[HEADER_BYTES:-FOOTER_BYTES])


def _opened(path: Path) -> io.FileIO:
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be opened: {error.strerror or error}") from error


def _corrupt(path: Path, record: int, offset: int, reason: str) -> CorruptRecordError:
    message = f"{path}: record {record} at offset {offset}: {reason}"
    return CorruptRecordError(message, shard=path.name, record=record, offset=offset)


def _suspects(block: memoryview, bounds: npt.NDArray[np.int64], filled: int) -> list[int]:
    """Return the bad records between these bounds, with one Python step per record."""
    cuts = bounds.tolist()
    actual = [crc32c(block[start + HEADER_BYTES : end - FOOTER_BYTES]) for start, end in itertools.pairwise(cuts)]
    u32, u64 = overlapping(block, np.dtype("<u4")), overlapping(block, np.dtype("<u8"))
    starts, ends = bounds[:-1], bounds[1:]
    lengths = (ends - starts - FRAME_BYTES).astype(np.uint64)
    good = u64[starts] == lengths
    good &= u32[starts + _LENGTH_BYTES] == masked_length_crcs(lengths)
    good &= u32[ends - FOOTER_BYTES] == mask_crcs(np.array(actual, dtype=np.uint32))
    good &= ends <= filled
    return [int(place) for place in np.flatnonzero(~good)]


def _fault(framed: memoryview) -> str:
    """Return what is wrong with one bad record."""
    length, length_crc = _HEADER.unpack_from(framed)
    expected_length = len(framed) - FRAME_BYTES
    if length != expected_length:
        return f"its length must be {expected_length} as in the index, stored is {length}"
    expected = mask(crc32c(framed[:_LENGTH_BYTES]))
    if length_crc != expected:
        return f"the masked CRC32C of the length {length} must be {expected:#010x}, stored is {length_crc:#010x}"
    stored = _CRC.unpack_from(framed, len(framed) - FOOTER_BYTES)[0]
    actual = mask(crc32c(framed[HEADER_BYTES:-FOOTER_BYTES]))
    return f"the masked CRC32C of its {length} bytes must be {actual:#010x}, stored is {stored:#010x}"
