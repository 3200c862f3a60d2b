import sys

import numpy as np
import pytest

from emlio.errors import DatasetError
from emlio.example import encode_example, parse_example

SMALL = encode_example({"image": b"pixels", "label": [3, -1], "box": [0.5]})


def test_views_are_of_the_record_and_not_copies() -> None:
    record = bytearray(encode_example({"image": b"pixels"}))
    (view,) = parse_example(memoryview(record))["image"]
    record[record.index(b"pixels")] = ord("P")
    assert isinstance(view, memoryview)
    assert view == b"Pixels"


def test_a_view_of_anything_is_read_as_bytes() -> None:
    record = np.frombuffer(encode_example({"n": list(range(7))}), np.uint16)
    assert parse_example(memoryview(record)) == {"n": list(range(7))}


def test_no_bytes_at_all_are_an_example_without_features() -> None:
    assert parse_example(b"") == {}


def test_a_feature_without_a_kind_is_an_empty_list() -> None:
    assert parse_example(b"\x0a\x07\x0a\x05\x0a\x01a\x12\x00") == {"a": []}
    assert parse_example(b"\x0a\x05\x0a\x03\x0a\x01a") == {"a": []}


def test_long_runs_of_int64_are_read_as_short_ones() -> None:
    values = [0, -1, 127, 128, 2**63 - 1, -(2**63)] * 20
    assert parse_example(encode_example({"n": values})) == {"n": values}


def wrapped(list_content: bytes, kind: bytes = b"\x1a") -> bytes:
    """An Example with one feature "k" and this in its list; nothing longer than 127 bytes."""
    feature = kind + bytes([len(list_content)]) + list_content
    entry = b"\x0a\x01k\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    return b"\x0a" + bytes([len(features)]) + features


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (b"\x0a", "byte 1 .* varint that ends by byte 1"),
        (b"\x0a\x05\x0a", "byte 0 .* a field that ends by byte 3, got one that ends at 7"),
        (b"\x0a\x02\x0a\x01", "byte 2 .* a field that ends by byte 4, got one that ends at 5"),
        (b"\x0a" + b"\xff" * 10, "byte 1 .* varint of at most 64 bits"),
        (b"\x0a" + b"\x80" * 10 + b"\x00", "byte 1 .* varint of at most 64 bits"),
        (b"\x0a" + b"\xff" * 9 + b"\x7f", "byte 1 .* varint of at most 64 bits"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "byte 0 .* a field that ends by byte 11"),
        (b"\x02\x00", r"byte 0 .* a field number in \[1, 2\*\*29\), got 0"),
        (b"\xfa\xff\xff\xff\xff\x01\x00", "byte 0 .* a field number"),
        (b"\x0b\x0c", "byte 0 .* wire type 0, 1, 2 or 5, got type 3"),
        (b"\x0d\x00\x00\x00", "byte 0 .* a field that ends by byte 4, got one that ends at 5"),
        (b"\x09\x00\x00\x00\x00", "byte 0 .* a field that ends by byte 5, got one that ends at 9"),
        (b"\x0a\x05\x0a\x03\x0a\x01\xff", "byte 6 .* name in UTF-8"),
        (wrapped(b"\x0a\x03abc", b"\x12"), "byte 13 .* packed floats of 4 bytes each, got 3 bytes"),
        (wrapped(b"\x0a\x02\x01\x80"), "byte 14 .* varint that ends by byte 15"),
        (wrapped(b"\x0a\x0b" + b"\xff" * 10 + b"\x01"), "byte 13 .* at most 64 bits"),
        (wrapped(b"\x0a\x40" + b"\x01" * 63 + b"\x80"), "byte 76 .* varint that ends"),
        (wrapped(b"\x08\x80"), "byte 12 .* varint that ends by byte 13"),
    ],
)
def test_a_malformed_record_is_refused_with_the_byte_and_what_was_expected(record: bytes, says: str) -> None:
    with pytest.raises(DatasetError, match=says):
        parse_example(record)


def test_no_proper_beginning_of_a_record_is_read_but_the_empty_one() -> None:
    for size in range(1, len(SMALL)):
        with pytest.raises(DatasetError):
            parse_example(SMALL[:size])


def test_depth_in_the_input_is_not_depth_in_the_reader() -> None:
    nested = b""
    for _ in range(sys.getrecursionlimit()):
        size, head = len(nested), bytearray()
        while size >= 0x80:
            head.append(size & 0x7F | 0x80)
            size >>= 7
        nested = b"\x0a" + bytes(head) + bytes([size]) + nested
    with pytest.raises(DatasetError, match="name in UTF-8"):
        parse_example(nested)
