"""Checking frames: each record's length and the checksums of length and data."""

import itertools
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c, mask
from emlio.errors import CorruptRecordError, DatasetError
from emlio.formats.tfrecord.scan import mask_crcs, masked_length_crcs, overlapping
from emlio.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES

__all__ = ["frame_faults", "verify_records"]

_BLOCK_BYTES = 1 << 20
_LENGTH_BYTES = 8
_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")


def verify_records(path: Path, offsets: npt.NDArray[np.int64], progress: Callable[[int], None] | None = None) -> None:
    """Check every record of a file.

    Args:
        path: the shard's file.
        offsets: the start of each frame, and finally the file's size.
        progress: called with the number of bytes that each step checked.

    Raises:
        CorruptRecordError: for the first corrupt record.
        DatasetError: the file cannot be read.
    """
    first, records = 0, len(offsets) - 1
    try:
        with path.open("rb") as file:
            while first < records:
                begin = int(offsets[first])
                # As many whole records as fit into a block, one at least.
                after = max(int(np.searchsorted(offsets, begin + _BLOCK_BYTES, side="right")) - 1, first + 1)
                block = file.read(int(offsets[after]) - begin)
                for place, reason in frame_faults(memoryview(block), offsets[first : after + 1] - begin).items():
                    offset = int(offsets[first + place])
                    raise CorruptRecordError(
                        f"{path}: record {first + place} at offset {offset}: {reason}",
                        shard=path.name,
                        record=first + place,
                        offset=offset,
                    )
                if progress is not None:
                    progress(len(block))
                first = after
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror or error}") from error


def frame_faults(block: memoryview, bounds: npt.NDArray[np.int64]) -> dict[int, str]:
    """Return what is wrong with frames, by their place.

    Args:
        block: the frames, one after the other; it may end too early.
        bounds: where each begins, and where the last one ends.
    """
    whole = int(np.searchsorted(bounds, len(block), side="right")) - 1
    faults = {
        place: _fault(block[int(bounds[place]) : int(bounds[place + 1])])
        for place in _suspects(block, bounds[: whole + 1])
    }
    faults |= dict.fromkeys(
        range(whole, len(bounds) - 1), f"the file ends {int(bounds[-1]) - len(block)} bytes too early"
    )
    return faults


def _suspects(block: memoryview, bounds: npt.NDArray[np.int64]) -> list[int]:
    """Return the bad frames between these bounds, with one Python step per record."""
    cuts = bounds.tolist()
    actual = [crc32c(block[start + HEADER_BYTES : end - FOOTER_BYTES]) for start, end in itertools.pairwise(cuts)]
    u32, u64 = overlapping(block, np.dtype("<u4")), overlapping(block, np.dtype("<u8"))
    starts, ends = bounds[:-1], bounds[1:]
    lengths = (ends - starts - FRAME_BYTES).astype(np.uint64)
    good = u64[starts] == lengths
    good &= u32[starts + _LENGTH_BYTES] == masked_length_crcs(lengths)
    good &= u32[ends - FOOTER_BYTES] == mask_crcs(np.array(actual, dtype=np.uint32))
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
