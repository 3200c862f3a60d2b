"""The encodings of MDS columns. Pickles are never read."""

import json
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np

from emlio.errors import ConfigError
from emlio.formats.contents import FieldType

__all__ = ["IMAGES", "decoder_of", "field_type", "size_of"]

_SCALARS: Final = (
    *(f"{sign}int{bits}" for sign in ("u", "") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
)
_ARRAY_TYPES: Final = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32",
    33: "int32", 34: "float32", 64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
_SHAPE_TYPES: Final = ("<u1", "<u2", "<u4", "<u8")
_PIXELS: Final = {
    **dict.fromkeys(("L", "P"), ("u1", 1)),
    "LA": ("u1", 2),
    **dict.fromkeys(("RGB", "YCbCr", "HSV", "LAB"), ("u1", 3)),
    **dict.fromkeys(("RGBA", "CMYK"), ("u1", 4)),
    "I;16": ("<u2", 1),
    "I": ("<i4", 1),
    "F": ("<f4", 1),
}
"""The type and the number of a pixel's numbers, by Pillow's modes; "1" is not among them, its pixels are bits."""

_BITS: Final = "1"

IMAGES: Final = ("jpeg", "png")
"""The encodings of columns that are encoded images."""


def size_of(encoding: str) -> int | None:
    """Return the bytes of each value of an encoding; None if they differ, or it is not known."""
    kind, _, rest = encoding.partition(":")
    if kind in _SCALARS or kind == "int":
        return _dtype(kind).itemsize
    if kind != "ndarray" or not rest:
        return None
    dtype, shape = _array_form(rest)
    return None if shape is None else _dtype(dtype).itemsize * math.prod(shape)


def _dtype(kind: str) -> "np.dtype[Any]":
    if kind not in (*_SCALARS, "int"):
        raise ValueError(f"numbers must be of one of the types {', '.join(_SCALARS)}, got {kind!r}")
    return np.dtype("int64" if kind == "int" else kind).newbyteorder("<")


def _array_form(rest: str) -> tuple[str, tuple[int, ...] | None]:
    """Return the type and the shape that follow "ndarray:"; an empty type and no shape if records have them."""
    dtype, _, text = rest.partition(":")
    if dtype:
        _dtype(dtype)
    shape = tuple(int(length) for length in text.split(",")) if text else None
    if shape is not None and min(shape) < 1:
        raise ValueError(f"lengths must be at least 1, got {shape}")
    return dtype, shape


def field_type(encoding: str) -> FieldType:
    """Return the type of a column's values."""
    kind, _, rest = encoding.partition(":")
    if kind in _SCALARS or kind == "int":
        return FieldType("int64" if kind == "int" else kind, ())
    if kind == "ndarray" and rest:
        dtype, shape = _array_form(rest)
        return FieldType(dtype or "array", shape)
    names = {
        "str": "str",
        "str_int": "int64",
        "str_float": "float64",
        "json": "json",
        "ndarray": "array",
        "pil": "array",
    }
    return FieldType(names.get(kind, "bytes"))


def decoder_of(name: str, encoding: str) -> Callable[[memoryview], Any]:
    """Return the function that decodes a column's values.

    Args:
        name: of the column, for errors.
        encoding: of the column, which `size_of` accepts.

    Raises:
        ConfigError: it cannot be decoded here.
    """
    kind, _, rest = encoding.partition(":")
    if kind in _SCALARS or kind == "int":
        dtype = _dtype(kind)
        return lambda view: np.frombuffer(view, dtype)[0]
    if kind == "ndarray":
        return _arrays(*_array_form(rest))
    known: dict[str, Callable[[memoryview], Any]] = {
        "bytes": _same,
        **dict.fromkeys(IMAGES, _same),
        "str": lambda view: str(view, "utf-8"),
        "str_int": lambda view: int(str(view, "utf-8")),
        "str_float": lambda view: float(str(view, "utf-8")),
        "str_decimal": lambda view: Decimal(str(view, "utf-8")),
        "json": lambda view: json.loads(bytes(view)),
        "pil": _picture,
    }
    found = known.get(kind)
    if found is None:
        raise ConfigError(
            f"column {name!r} is encoded as {encoding!r}, which cannot be read here; choose other columns with fields="
        )
    return found


def _same(view: memoryview) -> memoryview:
    return view


def _arrays(dtype_name: str, shape: tuple[int, ...] | None) -> Callable[[memoryview], Any]:
    def decode(view: memoryview) -> Any:
        at = 0
        kind = dtype_name
        if not kind:
            kind, at = _ARRAY_TYPES[view[0]], 1
        lengths = shape
        if lengths is None:
            packed = view[at]
            number_type = np.dtype(_SHAPE_TYPES[packed % 4])
            end = at + 1 + (packed >> 2) * number_type.itemsize
            lengths, at = tuple(np.frombuffer(view[at + 1 : end], number_type).tolist()), end
        dtype = _dtype(kind)
        return np.frombuffer(view[at:], dtype).reshape(lengths).astype(dtype.newbyteorder("="), copy=False)

    return decode


def _picture(view: memoryview) -> Any:
    """Return the pixels of a raw picture: rows, columns, and channels if there are several."""
    width, height, mode_bytes = struct.unpack_from("<III", view)
    mode = str(view[12 : 12 + mode_bytes], "ascii")
    if mode == _BITS:  # each row begins with a byte of its own
        rows = np.frombuffer(view[12 + mode_bytes :], np.uint8).reshape(height, (width + 7) // 8)
        return np.unpackbits(rows, axis=1, count=width).astype(np.bool_)
    if mode not in _PIXELS:
        raise ValueError(f"pictures must have one of the modes {', '.join((_BITS, *_PIXELS))}, got {mode!r}")
    dtype, channels = _PIXELS[mode]
    pixels = np.frombuffer(view[12 + mode_bytes :], dtype)
    return pixels.reshape((height, width) if channels == 1 else (height, width, channels))
