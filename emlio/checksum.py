"""CRC32C, and the mask that TFRecord applies to it.

Covers: one-shot checksums with the CPU's own instruction. Only this module imports the library.
Does not cover: when a checksum is verified, and what follows from a bad one.
"""

from crc32c import crc32c as _crc32c
from typing_extensions import Buffer

__all__ = ["crc32c", "mask", "masked_crc32c"]

_MASK_DELTA = 0xA282EAD8
"""The constant of the TFRecord format. Checksums are stored rotated and shifted, so that a checksum
of data that contains checksums is not degenerate."""


_KEEP_LOCK = 0
"""The library's third argument: keep the interpreter's lock. At 28 GB/s a record takes
microseconds; releasing the lock and waiting for it again takes longer when other threads work."""


def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the CRC32C of `data`, continued from `value`."""
    return _crc32c(data, value, _KEEP_LOCK)


def mask(crc: int) -> int:
    """Return a checksum in the form in which TFRecord stores it."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def masked_crc32c(data: Buffer) -> int:
    """Return the CRC32C of `data` as TFRecord stores it."""
    return mask(crc32c(data))
