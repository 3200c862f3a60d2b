"""Check that an encoded picture can be decoded, by decoding it with Pillow.

Covers: what Pillow says, and what makes DALI end a pipeline. Does not cover: picking a record's
picture (emlio.reading.pictures).
"""

import io
from collections.abc import Callable
from typing import Any

from emlio.errors import ConfigError
from emlio.extras import how_to_install
from emlio.images.header import picture_extension
from emlio.images.wholeness import image_fault

__all__ = ["picture_decoder"]


def picture_decoder() -> Callable[[memoryview | bytes], str | None]:
    """Return a function that returns why a picture cannot be decoded, None if it can.

    Raises:
        ConfigError: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ConfigError(
            f"decoding pictures requires Pillow, which is not installed: {how_to_install('images')}"
        ) from error
    return lambda encoded: _fault(Image, encoded)


def _fault(image: Any, encoded: memoryview | bytes) -> str | None:
    try:
        with image.open(io.BytesIO(encoded)) as picture:
            picture.load()
    except Exception as error:  # noqa: BLE001  # Pillow's plug-ins raise errors of any kind on broken bytes
        return f"Pillow cannot decode it: {type(error).__name__}: {_in_short(str(error))}"
    # Decoders fill what is missing with grey; DALI's ends its pipeline instead. It decodes no GIF.
    return image_fault(encoded) if picture_extension(encoded) not in ("", "gif") else None


def _in_short(text: str) -> str:
    """Return a message without the address of the buffer, which differs from run to run."""
    return text.partition(" <_io.BytesIO")[0]
