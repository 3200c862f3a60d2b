"""Parser of one serialised tf.train.Example that checks every length.

The message has exactly three levels (number = field, all length-delimited unless stated):

    Example  1: Features
    Features 1: entry, repeated                          one per feature; the last of a name counts
    entry    1: name   2: Feature
    Feature  1: BytesList | 2: FloatList | 3: Int64List  the last kind counts; equal kinds are joined
    lists    1: value, repeated                          numbers packed (one run) or tagged one by one
"""

import struct
from collections.abc import Set
from typing import Final, TypeAlias

import numpy as np

from emlio.errors import DatasetError
from emlio.example.varint import MAX_VARINT_BYTES, unpack_varints

__all__ = ["BYTES", "FLOATS", "INTS", "KIND_NAMES", "NO_KIND", "Feature", "parse_example", "read_features"]

NO_KIND: Final = 0
BYTES: Final = 0x0A
FLOATS: Final = 0x12
INTS: Final = 0x1A
"""The kind of a feature is the tag of its list."""

KIND_NAMES: Final = {NO_KIND: "nothing", BYTES: "bytes", FLOATS: "floats", INTS: "int64"}

Feature: TypeAlias = tuple[int, list[memoryview], list[int]]
"""The kind; the values of a bytes feature or the raw runs of a float feature; the values of an
int64 feature.
"""

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIRST_DELIMITED = 0x0A
_SECOND_DELIMITED = 0x12
_FIRST_VARINT = 0x08
_FIRST_FIXED32 = 0x0D
_LONG_RUN_BYTES = 48
"""From this size on, numpy parses a packed run of int64 faster than a loop."""


def parse_example(record: bytes | memoryview) -> dict[str, list[memoryview] | list[int] | list[float]]:
    """Return the features of one record.

    Values of bytes features are views of `record`, not copies. A feature without a kind is an empty
    list.

    Raises:
        DatasetError: the record is not an Example; the message names the byte and what was expected
            there.
    """
    view = memoryview(record).cast("B")
    result: dict[str, list[memoryview] | list[int] | list[float]] = {}
    for key, (kind, views, ints) in read_features(view, 0, len(view), None).items():
        name = key.decode()
        if kind == FLOATS:
            raw = b"".join(views)
            result[name] = list(struct.unpack(f"<{len(raw) // 4}f", raw))
        elif kind == BYTES:
            result[name] = views
        else:
            result[name] = ints
    return result


def read_features(buffer: memoryview, start: int, end: int, wanted: Set[bytes] | None) -> dict[bytes, Feature]:
    """Return the features of the Example in buffer[start:end], by the UTF-8 bytes of their names.

    Args:
        buffer: bytes; nothing outside the range is read.
        start: where the record begins; offsets in messages are relative to it.
        end: one past its last byte.
        wanted: the names to read, None for all. An entry that begins with another name is skipped
            by its length, without reading its content.

    Raises:
        DatasetError: the range does not hold an Example.
    """
    features: dict[bytes, Feature] = {}
    at = start
    while at < end:
        tag, low, at = _field(buffer, at, end, start)
        if tag == _FIRST_DELIMITED:
            _read_entries(buffer, low, at, start, wanted, features)
    return features


def _read_entries(
    buffer: memoryview, at: int, end: int, origin: int, wanted: Set[bytes] | None, features: dict[bytes, Feature]
) -> None:
    while at < end:
        tag, low, at = _field(buffer, at, end, origin)
        if tag != _FIRST_DELIMITED:
            continue
        if wanted is not None and low < at and buffer[low] == _FIRST_DELIMITED:
            _, name_low, name_high = _field(buffer, low, at, origin)
            if buffer[name_low:name_high].tobytes() not in wanted:
                continue
        name, feature = _read_entry(buffer, low, at, origin)
        if wanted is None or name in wanted:
            features[name] = feature


def _read_entry(buffer: memoryview, at: int, end: int, origin: int) -> tuple[bytes, Feature]:
    name, name_at = b"", at
    kind = NO_KIND
    views: list[memoryview] = []
    ints: list[int] = []
    while at < end:
        tag, low, at = _field(buffer, at, end, origin)
        if tag == _FIRST_DELIMITED:
            name, name_at = buffer[low:at].tobytes(), low
        elif tag == _SECOND_DELIMITED:
            inner = low
            while inner < at:
                list_tag, list_low, inner = _field(buffer, inner, at, origin)
                if list_tag not in KIND_NAMES:
                    continue
                if list_tag != kind:
                    kind, views, ints = list_tag, [], []
                if kind == INTS:
                    _read_ints(buffer, list_low, inner, origin, ints)
                else:
                    _read_chunks(buffer, list_low, inner, origin, kind, views)
    if not name.isascii():
        try:
            name.decode()
        except UnicodeDecodeError as error:
            raise _malformed(name_at, origin, "a feature's name in UTF-8", repr(name)) from error
    return name, (kind, views, ints)


def _read_chunks(buffer: memoryview, at: int, end: int, origin: int, kind: int, views: list[memoryview]) -> None:
    while at < end:
        tag, low, at = _field(buffer, at, end, origin)
        if tag == _FIRST_DELIMITED:
            if kind == FLOATS and (at - low) % 4:
                raise _malformed(low, origin, "packed floats of 4 bytes each", f"{at - low} bytes")
            views.append(buffer[low:at])
        elif tag == _FIRST_FIXED32 and kind == FLOATS:
            views.append(buffer[low:at])


def _read_ints(buffer: memoryview, at: int, end: int, origin: int, ints: list[int]) -> None:
    while at < end:
        tag, low, at = _field(buffer, at, end, origin)
        if tag == _FIRST_DELIMITED:
            if at - low >= _LONG_RUN_BYTES and (run := unpack_varints(np.frombuffer(buffer[low:at], np.uint8))):
                ints.extend(run[0].tolist())
                continue
            while low < at:  # short, or malformed: then this loop finds the byte
                value, low = _varint(buffer, low, at, origin)
                ints.append(value - (1 << 64) if value >> 63 else value)
        elif tag == _FIRST_VARINT:
            value, _ = _varint(buffer, low, at, origin)
            ints.append(value - (1 << 64) if value >> 63 else value)


def _field(buffer: memoryview, at: int, end: int, origin: int) -> tuple[int, int, int]:
    """Return the tag of the field at `at`, and where its content begins and ends.

    `at` must be before `end`; the content ends at or before `end`.
    """
    tag = buffer[at]
    low = at + 1
    if tag >= 0x80:
        tag, low = _varint(buffer, at, end, origin)
    wire_type = tag & 7
    if tag < 8 or tag >> 32:
        raise _malformed(at, origin, "a field number in [1, 2**29)", f"{tag >> 3}")
    if wire_type == _DELIMITED:
        if low < end and buffer[low] < 0x80:
            length = buffer[low]
            low += 1
        else:
            length, low = _varint(buffer, low, end, origin)
        high = low + length
    elif wire_type == _VARINT:
        _, high = _varint(buffer, low, end, origin)
    elif wire_type == _FIXED32:
        high = low + 4
    elif wire_type == _FIXED64:
        high = low + 8
    else:
        raise _malformed(at, origin, "a field of wire type 0, 1, 2 or 5", f"type {wire_type}")
    if high > end:
        raise _malformed(at, origin, f"a field that ends by byte {end - origin}", f"one that ends at {high - origin}")
    return tag, low, high


def _varint(buffer: memoryview, at: int, end: int, origin: int) -> tuple[int, int]:
    value = 0
    for place, position in enumerate(range(at, min(end, at + MAX_VARINT_BYTES))):
        octet = buffer[position]
        value |= (octet & 0x7F) << (7 * place)
        if octet < 0x80:
            if value >> 64:
                break
            return value, position + 1
    else:
        if end - at < MAX_VARINT_BYTES:
            raise _malformed(at, origin, f"a varint that ends by byte {end - origin}", "none")
    raise _malformed(at, origin, "a varint of at most 64 bits", "a longer one")


def _malformed(at: int, origin: int, expected: str, got: str) -> DatasetError:
    return DatasetError(f"not a tf.train.Example: byte {at - origin} of the record must begin {expected}, got {got}")
