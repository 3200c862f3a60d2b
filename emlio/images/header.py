"""Format, size and channels of an image, from its header.

Covers: JPEG and PNG by their headers, other formats with Pillow if it is installed. Does not cover:
decoding; an image with a valid header may still be broken further on.
"""

import io
import struct
from dataclasses import dataclass
from pathlib import PurePath

from typing_extensions import Buffer

from emlio.errors import DatasetError
from emlio.extras import how_to_install

__all__ = ["IMAGE_EXTENSIONS", "NOT_DECODED", "ImageHeader", "is_image_name", "picture_extension", "read_image_header"]

IMAGE_EXTENSIONS = frozenset({"bmp", "gif", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp"})

NOT_DECODED = frozenset({"gif"})
"""Extensions of pictures that decoders of training, such as DALI, do not read."""

_JPEG_MAGIC = b"\xff\xd8\xff"
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_TIFF_MAGICS = (b"II*\0", b"MM\0*")
# Start-of-frame markers. DHT (C4), JPG (C8) and DAC (CC) lie in the same range but are not frames.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE_MARKERS = frozenset({0x01, *range(0xD0, 0xD8)})
_START_OF_SCAN = 0xDA
_JPEG_COLORSPACES = {1: "Grayscale", 3: "RGB", 4: "CMYK"}
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_PNG_COLORSPACES = {0: "Grayscale", 2: "RGB", 3: "RGB", 4: "Grayscale", 6: "RGB"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHeader:
    """The properties of an image that are known before decoding.

    Attributes:
        format: "JPEG", "PNG", or Pillow's name for it.
        width: in pixels.
        height: in pixels.
        channels: as a decoder returns them; a palette counts as three.
        colorspace: "RGB", "Grayscale", "CMYK", or Pillow's mode.
    """

    format: str
    width: int
    height: int
    channels: int
    colorspace: str

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise DatasetError(f"an image must have at least one pixel, its header says {self.width}x{self.height}")


def is_image_name(name: str) -> bool:
    """Return whether a file of this name should be an image."""
    return PurePath(name).suffix[1:].lower() in IMAGE_EXTENSIONS


def picture_extension(encoded: Buffer) -> str:
    """Return the usual extension of an encoded picture by its first bytes; empty if they are of no known kind."""
    view = memoryview(encoded)
    head = bytes(view[:12])
    if head.startswith(_JPEG_MAGIC):
        return "jpg"
    if head.startswith(_PNG_MAGIC):
        return "png"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if head[:4] == b"RIFF" and head[8:] == b"WEBP":
        return "webp"
    if head.startswith(_TIFF_MAGICS):
        return "tif"
    # Two letters are too few to tell, so the size that follows them must be right.
    if head[:2] == b"BM" and int.from_bytes(head[2:6], "little") == len(view):
        return "bmp"
    return ""


def read_image_header(encoded: bytes) -> ImageHeader:
    """Read the header of an encoded image.

    Raises:
        DatasetError: it is not an image, its header is broken, or its format needs Pillow, which is
            not installed.
    """
    if encoded.startswith(_JPEG_MAGIC):
        return _jpeg(encoded)
    if encoded.startswith(_PNG_MAGIC):
        return _png(encoded)
    return _by_pillow(encoded)


def _jpeg(encoded: bytes) -> ImageHeader:
    at = 2
    while at + 4 <= len(encoded):
        if encoded[at] != 0xFF:
            raise DatasetError(f"a JPEG's header must have a marker at byte {at}, has {encoded[at]:#04x}")
        marker = encoded[at + 1]
        if marker == 0xFF:  # fill bytes may precede any marker
            at += 1
        elif marker in _BARE_MARKERS:
            at += 2
        elif marker in _FRAMES and at + 10 <= len(encoded):
            height, width, channels = struct.unpack_from(">HHB", encoded, at + 5)
            colorspace = _JPEG_COLORSPACES.get(channels, f"{channels} components")
            return ImageHeader(format="JPEG", width=width, height=height, channels=channels, colorspace=colorspace)
        elif marker == _START_OF_SCAN:
            break
        else:
            at += 2 + struct.unpack_from(">H", encoded, at + 2)[0]
    raise DatasetError(f"a JPEG must have a frame header before its pixels, {len(encoded)} bytes hold none")


def _png(encoded: bytes) -> ImageHeader:
    if len(encoded) < 26 or encoded[12:16] != b"IHDR":
        raise DatasetError("a PNG must begin with an IHDR chunk, it does not")
    width, height, _, color = struct.unpack_from(">IIBB", encoded, 16)
    if color not in _PNG_CHANNELS:
        raise DatasetError(f"a PNG's colour type must be one of {sorted(_PNG_CHANNELS)}, is {color}")
    channels, colorspace = _PNG_CHANNELS[color], _PNG_COLORSPACES[color]
    return ImageHeader(format="PNG", width=width, height=height, channels=channels, colorspace=colorspace)


def _by_pillow(encoded: bytes) -> ImageHeader:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise DatasetError(
            f"neither a JPEG nor a PNG; install Pillow to read other formats: {how_to_install('images')}"
        ) from error
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            bands = image.getbands()
            grey = bands in (("L",), ("1",))
            return ImageHeader(
                format=image.format or "unknown",
                width=image.width,
                height=image.height,
                channels=3 if image.mode == "P" else len(bands),
                colorspace="Grayscale" if grey else "RGB" if image.mode in ("P", "RGB", "RGBA") else image.mode,
            )
    # Pillow's plug-ins raise many kinds of errors on broken bytes; these are the ones that its
    # documentation and sources name.
    except UnidentifiedImageError as error:  # whose text names an object in memory
        raise DatasetError(
            f"is no picture that Pillow knows, {len(encoded)} bytes that begin with {encoded[:12]!r}"
        ) from error
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, Image.DecompressionBombError) as error:
        raise DatasetError(f"is not an image that Pillow can open: {error}") from error
