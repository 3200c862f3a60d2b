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
from dataclasses import dataclass
from typing import Final

__all__ = ["TIFF_MAGICS", "image_fault", "jpeg_fault", "tiff_fault"]

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


TIFF_MAGICS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")

_VALUE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_WHOLE_NUMBERS = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}
_WIDTH, _HEIGHT = 256, 257
_PARTS = ((273, 279), (324, 325))
"""Tags of the positions of strips and tiles, and of their sizes."""
_TAGS_READ = frozenset({_WIDTH, _HEIGHT, *(tag for pair in _PARTS for tag in pair)})


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """The layout of a file's fields, in format characters of the module struct."""

    order: str
    directory_at: int
    word: str
    word_bytes: int
    entries: str
    entries_bytes: int


def tiff_fault(encoded: bytes | memoryview) -> str | None:
    """Return why the bytes of a TIFF do not hold its complete first image; None if they do."""
    size = len(encoded)
    order = "<" if encoded[0] == ord("I") else ">"
    if ord("+") in (encoded[2], encoded[3]):
        form = _Form(order=order, directory_at=8, word="Q", word_bytes=8, entries="Q", entries_bytes=8)
    else:
        form = _Form(order=order, directory_at=4, word="I", word_bytes=4, entries="H", entries_bytes=2)
    if form.directory_at + form.word_bytes > size:
        return f"a TIFF must have a header with its directory's position, this one is cut off after {size} bytes"
    (at,) = struct.unpack_from(order + form.word, encoded, form.directory_at)
    if at + form.entries_bytes > size:
        return f"a TIFF's directory must be inside its {size} bytes, this one's is at byte {at}"
    (entries,) = struct.unpack_from(order + form.entries, encoded, at)
    at += form.entries_bytes
    entry_bytes = 4 + 2 * form.word_bytes
    if at + entries * entry_bytes > size:
        return f"a TIFF's directory must be inside its {size} bytes, this one's has {entries} entries from byte {at} on"
    tags: dict[int, list[int]] = {}
    for entry_at in range(at, at + entries * entry_bytes, entry_bytes):
        tag, kind, count = struct.unpack_from(f"{order}HH{form.word}", encoded, entry_at)
        values_at = entry_at + 4 + form.word_bytes
        values_bytes = _VALUE_SIZES.get(kind, 0) * count
        if values_bytes > form.word_bytes:
            (values_at,) = struct.unpack_from(order + form.word, encoded, values_at)
        if values_at + values_bytes > size:
            return (
                f"a TIFF's tags must be inside its {size} bytes, this one's tag {tag} ends at "
                f"{values_at + values_bytes}"
            )
        if kind in _WHOLE_NUMBERS and tag in _TAGS_READ:
            tags[tag] = list(struct.unpack_from(f"{order}{count}{_WHOLE_NUMBERS[kind]}", encoded, values_at))
    return _parts_fault(tags, size)


def _parts_fault(tags: dict[int, list[int]], size: int) -> str | None:
    if not (any(tags.get(_WIDTH, ())) and any(tags.get(_HEIGHT, ()))):
        return "a TIFF must have pixels, this one's directory has no width or no height"
    for starts_tag, sizes_tag in _PARTS:
        starts = tags.get(starts_tag)
        if starts:
            sizes = tags.get(sizes_tag, [1] * len(starts))  # very old writers omit the sizes
            if len(sizes) != len(starts):
                return (
                    f"a TIFF must have a size for each strip or tile, this one has {len(starts)} and {len(sizes)} sizes"
                )
            end = max(map(sum, zip(starts, sizes, strict=True)))
            return None if end <= size else f"a TIFF's pixels must be inside its {size} bytes, this one's end at {end}"
    return "a TIFF's directory must have the position of its pixels, this one's has none"


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
