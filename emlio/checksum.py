"""CRC32C, and the mask TFRecord puts on it.

Covers: one-shot checksums with the CPU's own instruction. The library is imported here and nowhere else.
Does not cover: when a checksum is checked, or what follows from a bad one.
"""

from crc32c import crc32c as _crc32c
from typing_extensions import Buffer

__all__ = ["crc32c", "mask", "masked_crc32c"]

_MASK_DELTA = 0xA282EAD8
"""The constant of the TFRecord format: checksums are stored rotated and shifted, so that a checksum of data that holds
checksums is not degenerate."""


_KEEP_LOCK = 0
"""For the library's third argument. At 28 GB/s a record is done in microseconds; giving the interpreter's lock away and queueing
for it again takes longer than that when other threads work."""


def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC32C of `data`, continued from `value`."""
    return _crc32c(data, value, _KEEP_LOCK)


def mask(crc: int) -> int:
    """The form in which TFRecord stores a checksum."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def masked_crc32c(data: Buffer) -> int:
    """CRC32C of `data` as TFRecord stores it."""
    return mask(crc32c(data))
