"""Encoder of tf.train.Example."""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.example.varint import pack_varints

__all__ = ["FeatureValue", "encode_example", "example_parts"]

FeatureValue: TypeAlias = (
    bytes
    | bytearray
    | memoryview
    | str
    | int
    | float
    | Sequence[bytes]
    | Sequence[str]
    | Sequence[int]
    | Sequence[float]
    | npt.NDArray[Any]
)
"""One or several values of one kind.

Text is stored as UTF-8. Whole numbers among floats are stored as floats.
"""

_BYTES = b"\x0a"
_FLOATS = b"\x12"
_INTS = b"\x1a"
_UINT64 = (1 << 64) - 1
_LONG_RUN = 24
"""From this many numbers on, numpy packs them faster than a loop."""
_SINGLES = (bytes, bytearray, memoryview, str)


def encode_example(features: Mapping[str, FeatureValue]) -> bytes:
    """Return the serialised Example that holds `features`.

    Args:
        features: name to value. An empty list has no kind and is refused; an empty array has the
            kind of its dtype.

    Raises:
        ConfigError: a value cannot be stored; the message names the feature.
    """
    return b"".join(example_parts(features))


def example_parts(features: Mapping[str, FeatureValue]) -> list[bytes | memoryview]:
    """Return the pieces of the serialised Example; bytes are not copied, so they must not change.

    Args:
        features: see `encode_example`.

    Raises:
        ConfigError: a value cannot be stored; the message names the feature.
    """
    parts: list[bytes | memoryview] = []
    size = 0
    # Protobuf sorts by UTF-8 bytes, which is code point order. Only its C core puts "ab" before
    # "a".
    for name in sorted(features):
        size += _append_entry(parts, name, features[name])
    return [b"\x0a" + _varint(size), *parts]


def _append_entry(parts: list[bytes | memoryview], name: str, value: FeatureValue) -> int:
    """Append one map entry and return its size.

    The lengths before a large value are written without joining the value to them.
    """
    try:
        key = name.encode()
        kind, body = _body(name, value)
    except UnicodeEncodeError as error:
        raise ConfigError(f"feature {name!r}: its name and text values must be encodable as UTF-8") from error
    list_size = sum(map(len, body))
    list_head = kind + _varint(list_size)
    feature_size = len(list_head) + list_size
    key_head = b"\x0a" + _varint(len(key)) + key + b"\x12" + _varint(feature_size) + list_head
    entry_size = len(key_head) + list_size
    head = b"\x0a" + _varint(entry_size) + key_head
    parts.append(head)
    parts.extend(body)
    return len(head) + list_size


def _body(name: str, value: FeatureValue) -> tuple[bytes, list[bytes | memoryview]]:
    """Return the kind's tag and the content of the list message."""
    # The most frequent kinds first: the checks of abstract types below cost more than the encoding.
    if type(value) is bytes:
        return _BYTES, [b"\x0a" + _varint(len(value)), value]
    if type(value) is int and -1 <= value >> 63 <= 0:
        return _INTS, _packed(_varint(value & _UINT64))
    if isinstance(value, _SINGLES):
        return _BYTES, _bytes_list(cast("list[bytes]", [value]))
    if isinstance(value, np.ndarray):
        return _array_body(name, value)
    if isinstance(value, Real):
        value = cast("list[float]", [value])
    if not isinstance(value, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise ConfigError(f"feature {name!r}: must be bytes, text, numbers or a list of one of them, got {value!r:.80}")
    items = cast("Sequence[object]", value)
    if not items:
        raise ConfigError(f"feature {name!r}: an empty list has no type; use an empty NumPy array with a dtype")
    if all(isinstance(item, _SINGLES) for item in items):
        return _BYTES, _bytes_list(cast("Sequence[bytes]", items))
    if all(isinstance(item, Integral) for item in items):
        whole = [int(cast("int", item)) for item in items]
        if min(whole) < -(1 << 63) or max(whole) >> 63 > 0:
            strange = next(number for number in whole if not -(1 << 63) <= number < 1 << 63)
            raise ConfigError(f"feature {name!r}: whole numbers must be in [-2**63, 2**63), got {strange}")
        if len(whole) < _LONG_RUN:
            return _INTS, _packed(b"".join([_varint(number & _UINT64) for number in whole]))
        return _INTS, _packed(pack_varints(np.array(whole, np.int64)))
    if all(isinstance(item, Real) for item in items):
        return _FLOATS, _packed(_floats(np.array([float(cast("float", item)) for item in items], np.float64)))
    types = sorted({type(item).__name__ for item in items})
    raise ConfigError(f"feature {name!r}: must be all bytes, all text or all numbers, got {', '.join(types)}")


def _array_body(name: str, value: npt.NDArray[Any]) -> tuple[bytes, list[bytes | memoryview]]:
    if value.ndim > 1:
        raise ConfigError(
            f"feature {name!r}: an array must have one dimension, got shape {value.shape}; flatten it with ravel()"
        )
    flat = value.reshape(-1)
    if flat.dtype.kind == "f":
        return _FLOATS, _packed(_floats(flat))
    if flat.dtype.kind == "S" and not flat.size:
        return _BYTES, []
    if flat.dtype.kind not in "bui":
        raise ConfigError(f"feature {name!r}: an array must hold whole numbers, floats or booleans, got {flat.dtype}")
    if flat.dtype == np.uint64 and flat.size and int(flat.max()) >= 1 << 63:
        raise ConfigError(f"feature {name!r}: whole numbers must be in [-2**63, 2**63), got {int(flat.max())}")
    return _INTS, _packed(pack_varints(flat.astype(np.int64)))


def _floats(values: npt.NDArray[np.floating[Any]]) -> bytes:
    # Values outside float32's range become infinity, as in protobuf.
    with np.errstate(over="ignore"):
        return values.astype("<f4").tobytes()


def _packed(content: bytes) -> list[bytes | memoryview]:
    return [b"\x0a" + _varint(len(content)), content] if content else []


def _bytes_list(items: Sequence[bytes | bytearray | memoryview | str]) -> list[bytes | memoryview]:
    parts: list[bytes | memoryview] = []
    for item in items:
        content = memoryview(item.encode() if isinstance(item, str) else item).cast("B")
        parts.append(b"\x0a" + _varint(len(content)))
        parts.append(content)
    return parts


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    # Most are lengths of names and records: without the loop they take half of the time.
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    octets = bytearray()
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)
