"""Check that a JPEG is complete from its header to its end.

Decoders may fill missing parts with grey without an error, so a truncated file must be found before
decoding.

Covers: the header's segments, the size, the end after the last scan. Does not cover: damage inside
the compressed pixels that leaves the end in place; only decoding finds that.
"""

import re
import struct
from typing import Final

__all__ = ["jpeg_fault"]

_SEGMENT = struct.Struct(">BBH")
_FRAME = struct.Struct(">HHB")
_LENGTH = struct.Struct(">H")
_END_OF_IMAGE: Final = 0xD9
_START_OF_SCAN: Final = 0xDA
# Start-of-frame markers. DHT (C4), JPG (C8) and DAC (CC) lie in the same range but are not frames.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITH_LENGTH = frozenset({*range(0xC0, 0xD0), *range(0xDA, 0xFF)})
# Among compressed pixels FF 00 stands for FF, FF D0 to FF D7 are restart markers, and FF FF is a
# fill byte.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")


def jpeg_fault(encoded: bytes | memoryview) -> str | None:
    """Return why the bytes of a JPEG are not a complete one; None if they are.

    Bytes after the end are ignored: cameras and editors append data there.
    """
    size = len(encoded)
    at = 2
    has_frame = False
    while at + 4 <= size:
        first, marker, length = _SEGMENT.unpack_from(encoded, at)
        if first != 0xFF:
            return f"a JPEG's header must have a marker at byte {at}, has {first:#04x}"
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if marker not in _WITH_LENGTH:
            if marker == _END_OF_IMAGE:
                return f"a JPEG must hold pixels, this one ends at byte {at} without any"
            at += 2
            continue
        if length < 2:
            return f"a JPEG's segment must be at least 2 bytes long, the one at byte {at} says {length}"
        if marker in _FRAMES:
            if length < 11 or at + 10 > size:
                return f"a JPEG's frame header must hold its size, the one at byte {at} is too short"
            height, width, components = _FRAME.unpack_from(encoded, at + 5)
            if not (height and width and components):
                return f"a JPEG must have pixels, its header says {width}x{height} of {components} components"
            has_frame = True
        at += 2 + length
        if marker == _START_OF_SCAN:
            if not has_frame:
                return "a JPEG must have a frame header before its pixels, this one has none"
            if at + 2 <= size and encoded[size - 2] == 0xFF and encoded[size - 1] == _END_OF_IMAGE:
                return None
            return _scans_fault(encoded, at)
    return f"a JPEG must have pixels after its header, this one is cut off in the header after {size} bytes"


def _scans_fault(encoded: bytes | memoryview, at: int) -> str | None:
    """Search for the end marker from the first scan on.

    Segments between scans are skipped, since their content may look like a marker.
    """
    size = len(encoded)
    while (found := _NEXT_MARKER.search(encoded, at)) is not None:
        at = found.start()
        marker = encoded[at + 1]
        if marker == _END_OF_IMAGE:
            return None
        at += 2
        if marker in _WITH_LENGTH:
            if at + 2 > size:
                break
            at += _LENGTH.unpack_from(encoded, at)[0]
    return f"a JPEG must end with its end marker, this one is cut off after {size} bytes"
