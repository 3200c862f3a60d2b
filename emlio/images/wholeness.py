"""Check that the bytes of a record are a complete image, before they are decoded.

A decoder may return grey pixels for a truncated file without an error, or end the whole pipeline.
So whatever can be checked without decoding is checked here, in a few microseconds, since the check
runs once for each record on the training host.

Covers: the formats that DALI decodes: JPEG, PNG, WebP, BMP, TIFF, PNM and JPEG 2000; whether they
are complete. Does not cover: damage inside compressed pixels, which only decoding finds; GIF, which
DALI does not decode.
"""

import re
import struct

from emlio.images.jpeg_wholeness import jpeg_fault
from emlio.images.tiff_wholeness import TIFF_MAGICS, tiff_fault

__all__ = ["image_fault"]

_JPEG_MAGIC = b"\xff\xd8\xff"
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_JPEG2000_MAGICS = (b"\x00\x00\x00\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51")
_MAGIC_BYTES = 12

_PNM_GAP = rb"(?:\s|#[^\n]*\n)+"
_PNM_HEADER = re.compile(rb"P[1-6]" + _PNM_GAP + rb"(\d{1,9})" + _PNM_GAP + rb"(\d{1,9})")
_PNM_LARGEST = re.compile(_PNM_GAP + rb"(\d{1,5})\s")
_PNM_SAMPLES = {ord("5"): 1, ord("6"): 3}
# The start of the packed pixels, and the end marker, which cannot occur among them.
_JPEG2000_PIXELS = re.compile(rb"\xff\x93")
_JPEG2000_END = re.compile(rb"\xff\xd9")
_BMP_OLD_HEADER_BYTES = 12
_BMP_UNCOMPRESSED = frozenset({0, 3, 6})


def image_fault(encoded: bytes | memoryview) -> str | None:
    """Return why these bytes are not a complete image; None if no check fails.

    Args:
        encoded: one record's image; a view must be of contiguous bytes. It is not copied.
    """
    head = bytes(encoded[:_MAGIC_BYTES])
    if head.startswith(_JPEG_MAGIC):
        return jpeg_fault(encoded)
    if head.startswith(_PNG_MAGIC):
        return _png_fault(encoded)
    if head[:4] == b"RIFF" and head[8:] == b"WEBP":
        return _webp_fault(encoded)
    if head[:4] in TIFF_MAGICS:
        return tiff_fault(encoded)
    if head[:2] == b"BM":
        return _bmp_fault(encoded)
    if head.startswith(_JPEG2000_MAGICS):
        return _jpeg2000_fault(encoded)
    if head[:1] == b"P" and head[1:2] in (b"1", b"2", b"3", b"4", b"5", b"6"):
        return _pnm_fault(encoded)
    if not head:
        return "an image must have bytes, this one is empty"
    return f"not a known image format: {len(encoded)} bytes that begin with {head!r}"


def _png_fault(encoded: bytes | memoryview) -> str | None:
    size = len(encoded)
    at = len(_PNG_MAGIC)
    if size < at + 25 or bytes(encoded[at : at + 8]) != b"\x00\x00\x00\rIHDR":
        return "a PNG must begin with an IHDR chunk, this one does not"
    width, height = struct.unpack_from(">II", encoded, at + 8)
    if not width or not height:
        return f"a PNG must have pixels, its header says {width}x{height}"
    has_pixels = False
    while at + 12 <= size:
        length, kind = struct.unpack_from(">I4s", encoded, at)
        at += 12 + length
        if kind == b"IDAT":
            has_pixels = True
        elif kind == b"IEND":
            return None if has_pixels else "a PNG must hold pixels, this one has no IDAT chunk"
    return f"a PNG must end with an IEND chunk, this one is cut off after {size} bytes"


def _webp_fault(encoded: bytes | memoryview) -> str | None:
    size = len(encoded)
    (length,) = struct.unpack_from("<I", encoded, 4)
    if 8 + length > size:
        return f"a WebP must have the {8 + length} bytes that its header states, this one is cut off after {size}"
    if length < 12 or bytes(encoded[12:16]) not in (b"VP8 ", b"VP8L", b"VP8X"):
        return "a WebP must begin with a VP8 chunk, this one does not"
    return None


def _bmp_fault(encoded: bytes | memoryview) -> str | None:
    size = len(encoded)
    if size < 26:
        return f"a BMP must have a header of at least 26 bytes, this one ends after {size}"
    pixels_at, header_bytes = struct.unpack_from("<II", encoded, 10)
    compression = stored = 0
    if header_bytes == _BMP_OLD_HEADER_BYTES:
        width, height, _, bits = struct.unpack_from("<4H", encoded, 18)
    elif 40 <= header_bytes <= 124 and size >= 54:
        width, height, _, bits, compression, stored = struct.unpack_from("<iiHHII", encoded, 18)
    else:
        return f"a BMP's header must have 12 bytes or 40 to 124, this one's has {header_bytes} of {size}"
    if width < 1 or not height or not bits:
        return f"a BMP must have pixels, its header says {width}x{height} of {bits} bits"
    # A negative height means that rows are stored from the top. A row is padded to four bytes.
    pixels_bytes = abs(height) * ((width * bits + 31) // 32 * 4) if compression in _BMP_UNCOMPRESSED else stored
    if pixels_at + pixels_bytes > size:
        return (
            f"a BMP must have the {pixels_at + pixels_bytes} bytes that its header states, this one is cut off after "
            f"{size}"
        )
    return None


def _jpeg2000_fault(encoded: bytes | memoryview) -> str | None:
    pixels = _JPEG2000_PIXELS.search(encoded)
    if pixels is None:
        return (
            f"a JPEG 2000 must have pixels after its header, this one is cut off in the header after {len(encoded)} "
            "bytes"
        )
    if bytes(encoded[-2:]) != b"\xff\xd9" and _JPEG2000_END.search(encoded, pixels.end()) is None:
        return f"a JPEG 2000 must end with its end marker, this one is cut off after {len(encoded)} bytes"
    return None


def _pnm_fault(encoded: bytes | memoryview) -> str | None:
    header = _PNM_HEADER.match(encoded)
    if header is None:
        return "a PNM must begin with its width and height, this one does not"
    width, height = int(header[1]), int(header[2])
    if not width or not height:
        return f"a PNM must have pixels, its header says {width}x{height}"
    kind = encoded[1]
    if kind < ord("4"):
        return None  # numbers as text: where they end is known only after parsing
    pixels_at = header.end() + 1
    pixels_bytes = (width + 7) // 8 * height
    if kind in _PNM_SAMPLES:
        largest = _PNM_LARGEST.match(encoded, header.end())
        if largest is None:
            return "a PNM must state its largest value before its pixels, this one does not"
        pixels_at = largest.end()
        pixels_bytes = width * height * _PNM_SAMPLES[kind] * (1 if int(largest[1]) < 256 else 2)
    if pixels_at + pixels_bytes > len(encoded):
        return (
            f"a PNM must have the {pixels_at + pixels_bytes} bytes that its header states, this one is cut off after "
            f"{len(encoded)}"
        )
    return None
