"""Encoding and decoding of many varints at once.

A varint holds 7 bits per byte, lowest first; every byte but the last has its top bit set. A
negative int64 takes ten bytes.
"""

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_VARINT_BYTES", "pack_varints", "unpack_varints"]

MAX_VARINT_BYTES = 10
_SHIFTS = np.arange(0, 7 * MAX_VARINT_BYTES, 7, dtype=np.uint64)
_PLACES = np.arange(MAX_VARINT_BYTES)


def pack_varints(values: npt.NDArray[np.int64]) -> bytes:
    """Return the packed form of `values`."""
    rest = values.astype(np.int64).view(np.uint64)[:, np.newaxis] >> _SHIFTS
    sizes = np.maximum((rest != 0).sum(axis=1, keepdims=True), 1)
    octets = (rest & np.uint64(0x7F)).astype(np.uint8)
    octets[sizes - 1 > _PLACES] |= 0x80
    packed: bytes = octets[sizes > _PLACES].tobytes()
    return packed


def unpack_varints(octets: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Return the values of a run, and the position of each value's last byte.

    None if the bytes are not a run of 64-bit varints.
    """
    if not octets.size or int(octets.max()) < 0x80:
        return octets.astype(np.int64), np.arange(octets.size)
    lasts = np.flatnonzero(octets < 0x80)
    if int(octets[-1]) >= 0x80:
        return None
    firsts = np.empty_like(lasts)
    firsts[0] = 0
    firsts[1:] = lasts[:-1] + 1
    sizes = lasts - firsts + 1
    longest = int(sizes.max())
    if longest > MAX_VARINT_BYTES:
        return None
    # The tenth byte carries bit 63 and nothing above it.
    if longest == MAX_VARINT_BYTES and int(octets[lasts[sizes == MAX_VARINT_BYTES]].max()) > 1:
        return None
    values = (octets[firsts] & 0x7F).astype(np.uint64)
    for place in range(1, longest):
        having = np.flatnonzero(sizes > place)
        values[having] |= (octets[firsts[having] + place] & 0x7F).astype(np.uint64) << _SHIFTS[place]
    return values.view(np.int64), lasts
