"""A TFRecord file.

byte 0   bit 0: what follows are orders of one frame each (kind, length of three bytes); else it is the file
rest     orders, or the file
"""

import struct
from itertools import pairwise

from emlio.checksum import masked_crc32c
from emlio.errors import DatasetError
from emlio.formats.tfrecord.scan import scan
from emlio.formats.tfrecord.verify import frame_faults
from emlio.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES
from tests.fuzz.draws import Draws
from tests.fuzz.memory_file import memory_file
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]

_MOST_BYTES = 4 << 20


def fuzz(data: bytes) -> None:
    """A file is refused by both ways of reading it, or all its records are where one who reads them in turn finds them."""
    content = _built(data[1:]) if data[:1] and data[0] & 1 else data[1:]
    expected = _in_turn(content)
    with memory_file(content) as path:
        try:
            framing = scan(path)
        except DatasetError:
            assert expected is None, f"a file of {len(expected or ())} whole records was refused"
            raise
        assert framing.offsets.tolist() == expected
        bad = frame_faults(memoryview(content), framing.offsets)
    for record, (start, end) in enumerate(pairwise(expected)):
        body = content[start + HEADER_BYTES : end - FOOTER_BYTES]
        stored = int(framing.data_crcs[record])
        assert stored == int.from_bytes(content[end - FOOTER_BYTES : end], "little")
        assert (record in bad) == (masked_crc32c(body) != stored)


def _in_turn(content: bytes) -> list[int] | None:
    """Where the frames begin and the last one ends; None where a header is wrong or a frame is cut."""
    offsets, at = [0], 0
    while at < len(content):
        header = content[at : at + HEADER_BYTES]
        if len(header) < HEADER_BYTES or masked_crc32c(header[:8]) != int.from_bytes(header[8:], "little"):
            return None
        at += int.from_bytes(header[:8], "little") + FRAME_BYTES
        offsets.append(at)
    return offsets if at == len(content) else None


def _built(orders: bytes) -> bytes:
    """A file of frames with right headers, some of them long, some of them wrong in one way."""
    draws = Draws(orders)
    made = bytearray()
    while draws.left and len(made) < _MOST_BYTES:
        kind, size = draws.byte(), int.from_bytes(draws.take(3), "little") % (1 << 19)
        body = bytes((kind,)) * size
        length = struct.pack("<Q", (1 << 63) + size if kind == 1 else size)
        length_crc = masked_crc32c(length) ^ (kind == 2)
        made += length + length_crc.to_bytes(4, "little") + (body[1:] if kind == 3 else body)
        made += (masked_crc32c(body) ^ (kind == 4)).to_bytes(4, "little")
    return bytes(made)


TARGET = Target(fuzz=fuzz, raises=(DatasetError,), allowance_bytes=96 << 20, tokens=(b"\x1f\x8b", b"\x78\x9c"))
