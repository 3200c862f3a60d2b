from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError
from emlio.example import encode_example, parse_example


def test_an_example_without_features_holds_an_empty_message() -> None:
    assert encode_example({}) == b"\x0a\x00"
    assert parse_example(encode_example({})) == {}


def test_the_bytes_of_a_small_example_are_these() -> None:
    assert encode_example({"b": 300, "a": b"xy"}) == (
        b"\x0a\x1a\x0a\x0b\x0a\x01a\x12\x06\x0a\x04\x0a\x02xy\x0a\x0b\x0a\x01b\x12\x06\x1a\x04\x0a\x02\xac\x02"
    )


def test_names_are_sorted_by_their_bytes_a_prefix_first() -> None:
    names = ["\U0001f600", "\uffff", "\u00e9", "ab", "a", "Z", ""]
    assert list(parse_example(encode_example(dict.fromkeys(names, 1)))) == [
        "",
        "Z",
        "a",
        "ab",
        "\u00e9",
        "\uffff",
        "\U0001f600",
    ]


@pytest.mark.parametrize(
    ("value", "same"),
    [
        ("text \u00e9", ["text \u00e9".encode()]),
        (b"raw", [b"raw"]),
        (bytearray(b"raw"), [b"raw"]),
        (memoryview(b"raw"), [b"raw"]),
        (["a", b"b"], [b"a", b"b"]),
        (7, [7]),
        (True, [1]),
        (-1, [-1]),
        ([2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        ([2**63 - 1, -(2**63)] * 30, [2**63 - 1, -(2**63)] * 30),
        (np.int32(5), [5]),
        ((1, 2), [1, 2]),
        (range(3), [0, 1, 2]),
        (2.5, [2.5]),
        (np.float64(2.5), [2.5]),
        ([1, 2.5], [1.0, 2.5]),
        (np.array([1, -(2**63)]), [1, -(2**63)]),
        (np.array([200, 3], np.uint8), [200, 3]),
        (np.array([True, False]), [1, 0]),
        (np.array([0.5, 1e300]), [0.5, float("inf")]),
        (np.array(3, np.uint64), [3]),
        (np.array([1, 2, 3, 4])[::2], [1, 3]),
        (np.array([1.5, 2.5], ">f4"), [1.5, 2.5]),
        (np.array([1, 2], ">i8"), [1, 2]),
        (np.empty(0, np.float32), []),
    ],
)
def test_every_accepted_value_is_read_back(value: Any, same: list[Any]) -> None:
    (read,) = parse_example(encode_example({"feature": value})).values()
    assert [bytes(item) if isinstance(item, memoryview) else item for item in read] == same


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "an empty list has no type"),
        ([1, b"a"], "got bytes, int"),
        (None, "got None"),
        ({"a": 1}, "must be bytes, text, numbers"),
        ([[1]], "got list"),
        ([5, -(2**63) - 1], "got -9223372036854775809"),
        (2**63, r"\[-2\*\*63, 2\*\*63\)"),
        (np.array([2**63], np.uint64), r"\[-2\*\*63, 2\*\*63\), got 9223372036854775808"),
        (np.zeros((2, 2)), r"must have one dimension, got shape \(2, 2\)"),
        (np.array(["a"]), "got <U1"),
        (np.array([1j]), "got complex128"),
    ],
)
def test_a_value_that_cannot_be_stored_is_refused_by_name(value: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=f"feature 'its name'.*{says}"):
        encode_example({"its name": value})


@pytest.mark.parametrize("features", [{"\ud800": 1}, {"a": "\ud800"}])
def test_text_that_utf_8_cannot_write_is_refused(features: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="UTF-8"):
        encode_example(features)
