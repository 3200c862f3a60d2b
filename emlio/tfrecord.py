"""The frame around a record in a TFRecord file.

    uint64 length | uint32 masked CRC of the length | data | uint32 masked CRC of the data        (all little-endian)

Covers: the frame's numbers, making one, checking many. Does not cover: files (emlio.daemon.shards), what the data means
(emlio.example).
"""

import struct
from typing_extensions import Buffer

from emlio.checksum import masked_crc32c

__all__ = ["FOOTER_BYTES", "FRAME_BYTES", "HEADER_BYTES", "frame"]

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
"""What a frame adds to a record's data."""

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")


def frame(data: Buffer) -> bytes:
    """The bytes a TFRecord file holds for one record."""
    body = bytes(data)
    length = _LENGTH.pack(len(body))
    return b"".join((length, _CRC.pack(masked_crc32c(length)), body, _CRC.pack(masked_crc32c(body))))
