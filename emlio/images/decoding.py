"""Decoding a picture to find out whether it can be.

A header says nothing of the pixels: a file that was cut off, or is damaged inside, is found by
decoding only. Pillow does it, if it is installed. JPEGs are decoded to an eighth of their size,
which reads all their bytes and takes a third of the time.

Covers: the check, whether decoders of training read a form at all, another form for those that do
not. Does not cover: checks without decoding (emlio.images.wholeness).
"""

import io
import struct
import zlib
from importlib import import_module
from typing import Any, Final

from typing_extensions import Buffer

from emlio.errors import ConfigError, DatasetError
from emlio.extras import how_to_install
from emlio.images.wholeness import image_fault

__all__ = ["as_png", "can_decode", "decoding_fault"]

_SCALE: Final = 8
_MOST_PIXELS: Final = 1 << 28
"""A file of a few bytes may claim any number of pixels."""

_BROKEN: Final = (OSError, ValueError, SyntaxError, EOFError, IndexError, struct.error, zlib.error, MemoryError)
"""Errors of Pillow's plug-ins on broken bytes, as its documentation and sources name them."""


def _library() -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise ConfigError(f"decoding pictures requires Pillow: {how_to_install('images')}") from error


def can_decode() -> bool:
    """Return whether Pillow is installed."""
    try:
        _library()
    except ConfigError:
        return False
    return True


def decoding_fault(encoded: Buffer) -> str | None:
    """Return why a picture cannot be decoded in training; None if it can.

    Raises:
        ConfigError: Pillow is not installed.
    """
    view = memoryview(encoded)
    fault = image_fault(view)
    if fault is not None:
        return fault
    library = _library()
    try:
        with library.open(io.BytesIO(view)) as picture:
            if picture.width * picture.height > _MOST_PIXELS:
                return (
                    f"must have at most {_MOST_PIXELS:,} pixels to be decoded, has {picture.width} x {picture.height}"
                )
            picture.draft(None, (max(picture.width // _SCALE, 1), max(picture.height // _SCALE, 1)))
            picture.load()
    except library.UnidentifiedImageError:
        return _unknown(view)
    except (*_BROKEN, library.DecompressionBombError) as error:
        return f"cannot be decoded: {error}"
    return None


def _unknown(view: memoryview) -> str:
    """Return the fault of bytes that Pillow does not know; its own text names an object in memory."""
    return f"is no picture that Pillow knows, {len(view)} bytes that begin with {bytes(view[:12])!r}"


def as_png(encoded: Buffer) -> bytes:
    """Return a picture as a PNG with the same pixels; of an animation, the first ones.

    Raises:
        ConfigError: Pillow is not installed.
        DatasetError: it cannot be decoded.
    """
    library = _library()
    out = io.BytesIO()
    try:
        with library.open(io.BytesIO(memoryview(encoded))) as picture:
            if picture.width * picture.height > _MOST_PIXELS:
                raise DatasetError(f"must have at most {_MOST_PIXELS:,} pixels, has {picture.width} x {picture.height}")
            picture.seek(0)
            # A palette may have a colour that stands for nothing.
            kept = (
                picture
                if picture.mode in ("1", "L", "LA", "RGB", "RGBA", "I;16")
                else picture.convert("RGBA" if "transparency" in picture.info else "RGB")
            )
            kept.save(out, "PNG")
    except library.UnidentifiedImageError as error:
        raise DatasetError(_unknown(memoryview(encoded))) from error
    except (*_BROKEN, library.DecompressionBombError) as error:
        raise DatasetError(f"cannot be decoded: {error}") from error
    return out.getvalue()
