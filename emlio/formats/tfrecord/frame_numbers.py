"""Vectorised access to the lengths and checksums of TFRecord frames.

Covers: reading unaligned numbers from a block, the masked CRC32C of many 8-byte little-endian
lengths. Does not cover: checksums of data (emlio.checksum).
"""

from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c

__all__ = ["mask_crcs", "masked_length_crcs", "overlapping"]

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
