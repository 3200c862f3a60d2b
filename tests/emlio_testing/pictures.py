"""Small pictures, encoded."""

import io
from typing import Any

from PIL import Image

__all__ = ["encoded_picture"]


def encoded_picture(
    form: str = "JPEG", mode: str = "RGB", *, size: tuple[int, int] = (12, 8), colour: Any = 0, **options: Any
) -> bytes:
    """Return a picture of one colour."""
    file = io.BytesIO()
    Image.new(mode, size, colour).save(file, form, **options)
    return file.getvalue()
