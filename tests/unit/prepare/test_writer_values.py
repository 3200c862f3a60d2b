"""Values that emlio.Writer takes and refuses, and the columns of records."""

import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emlio
from emlio.errors import ConfigError
from emlio.example import parse_example
from emlio.prepare.writing.columns import RAW, encode_record, parse_schema
from emlio_testing.datasets import read_tfrecord

_ALLOWED = "must be bytes, str, a number, a NumPy array, a tensor, a PIL image, or a list"


def _named(value: object) -> str:
    """Return a name for a test that is the same in each process: no address of an object."""
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text


def _features(value: Any, schema: dict[str, str] | None = None) -> dict[str, list[Any]]:
    """The features of a record with one column, in plain values."""
    encoded = encode_record({"x": value}, 0, parse_schema(schema))
    found = parse_example(memoryview(b"".join(encoded.parts)))
    plain = {
        name: [bytes(one) if isinstance(one, memoryview) else one for one in values] for name, values in found.items()
    }
    forms = encoded.forms
    assert forms is not None
    assert {name: len(values) for name, values in plain.items()} == {name: count for name, (_, count) in forms.items()}
    return plain


class _Tensor:
    """Something with the methods of a tensor on a device."""

    def detach(self) -> "_Tensor":
        return self

    def cpu(self) -> "_Tensor":
        return self

    def numpy(self) -> Any:
        return np.arange(3, dtype=np.int32)


class _ArrayLike:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.ones((2, 2), np.float16)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (b"ab", [b"ab"]),
        (b"", [b""]),
        (bytearray(b"ab"), [b"ab"]),
        (memoryview(b"abcd")[::2], [b"ac"]),
        (memoryview(np.arange(2, dtype=np.int16)), [b"\0\0\1\0"]),
        ("Größe", ["Größe".encode()]),
        ("\udcff", [b"\xff"]),
        (True, [1]),
        (-5, [-5]),
        (2**63 - 1, [2**63 - 1]),
        (0.5, [0.5]),
        (float("inf"), [float("inf")]),
        (np.int16(-3), [-3]),
        (np.bool_(False), [0]),
        (np.float64(0.25), [0.25]),
        (np.longdouble(0.25), [0.25]),
        (np.str_("a"), [b"a"]),
        (np.bytes_(b"a"), [b"a"]),
        (np.array(7, np.uint8), [7]),
        (np.array("text"), [b"text"]),
        ([1, 2, 300], [1, 2, 300]),
        ((1, 2), [1, 2]),
        (range(3), [0, 1, 2]),
        ([True, np.int64(4)], [1, 4]),
        ([1, 0.5], [1.0, 0.5]),
        ([b"a", b""], [b"a", b""]),
        ([bytearray(b"a"), memoryview(b"b")], [b"a", b"b"]),
        (["a", "ü"], [b"a", "ü".encode()]),
        (np.arange(3, dtype=np.int64), [0, 1, 2]),
        (np.array([1, 2], np.uint32), [1, 2]),
        (np.array([0.5, 1], np.float32), [0.5, 1.0]),
        (np.empty(0, np.float32), []),
        (_Tensor(), [0, 1, 2]),
    ],
    ids=_named,
)
def test_values_that_one_feature_holds(value: Any, stored: list[Any]) -> None:
    assert _features(value) == {"x": stored}


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.uint8).reshape(2, 3),
        np.arange(6, dtype=np.float32).reshape(1, 2, 3).transpose(2, 0, 1),
        np.array([1.5, 2.5]),
        np.array([1.5], np.float16),
        np.array([2**64 - 1], np.uint64),
        np.array([True, False]),
        np.array([1 + 2j]),
        np.array(["ab", "c"]),
        np.array([b"ab", b"c"]),
        np.array(["2026-01-01"], "datetime64[ns]"),
        np.array([1, 2], ">f4"),
        np.empty((0, 4), np.int32),
        np.complex64(1 + 2j),
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}",
)
def test_other_arrays_are_bytes_a_shape_and_a_type(array: Any) -> None:
    found = _features(array)
    shape = tuple(found.get("x/shape", ()))
    back = np.frombuffer(found["x/data"][0], np.dtype(found["x/dtype"][0].decode())).reshape(shape)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert np.array_equal(back, array)


def test_an_object_with_an_array_is_that_array() -> None:
    assert _features(_ArrayLike())["x/shape"] == [2, 2]


def test_a_picture_becomes_a_png_with_the_same_pixels() -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow makes the pictures")
    import io

    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        picture = (
            image.effect_noise((9, 5), 80).convert("L").convert(mode)
            if mode != "I;16"
            else image.new(mode, (9, 5), 60_000)
        )
        back = image.open(io.BytesIO(_features(picture)["x"][0]))
        assert (back.format, back.size) == ("PNG", (9, 5))
        assert back.convert("RGBA").tobytes() == picture.convert("RGBA").tobytes()
    with pytest.raises(ConfigError, match=r"record 0, column 'x': must be a PIL image of a mode .* got mode 'CMYK'"):
        _features(image.new("CMYK", (2, 2)))


def test_a_tensor_of_torch_is_its_array() -> None:
    torch = pytest.importorskip("torch")
    assert _features(torch.tensor([1, 2], requires_grad=False)) == {"x": [1, 2]}
    assert _features(torch.tensor([0.5], requires_grad=True)) == {"x": [0.5]}
    assert _features(torch.tensor(3)) == {"x": [3]}
    with pytest.raises(ConfigError, match=r"must be a tensor that NumPy can hold, got Tensor"):
        _features(torch.ones(2, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, _ALLOWED),
        ({"a": 1}, _ALLOWED + ".*got dict"),
        (object(), _ALLOWED),
        (Decimal("1.5"), _ALLOWED),
        (1 + 2j, _ALLOWED),
        ({1, 2}, _ALLOWED),
        ([[1, 2], [3]], r"Give it as one array: numpy\.array\(value\)"),
        ([np.arange(2), np.arange(3)], "Give it as one array"),
        ([1, "a"], "must be a list of one kind of value, got one of int, str"),
        ([b"a", "a"], "must be a list of one kind of value, got one of bytes, str"),
        ([None], _ALLOWED),
        ([], "an empty list in the first record has no kind; name the kinds of all columns with schema="),
        (2**63, r"whole numbers must be in \[-2\*\*63, 2\*\*63\)"),
        (np.uint64(2**63), r"whole numbers must be in \[-2\*\*63, 2\*\*63\)"),
        ("\ud800", "must be text that can be encoded as UTF-8"),
        (np.array([{}]), "must be an array of numbers, bytes or text, got one of dtype object"),
        (np.zeros(2, "i4,i4"), "must be an array of numbers, bytes or text"),
        (np.ma.masked_array([1, 2], [True, False]), "must be an array without a mask"),
    ],
    ids=_named,
)
def test_anything_else_is_an_error_that_names_record_and_column(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^record 7.*'x'.*{message}"):
        encode_record({"x": value}, 7, None)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"a": 1}, "record 3: must have the columns 'a', 'b' in the first record, lacks 'b'"),
        ({"a": 1, "b": "x", "c": 2}, "has also 'c'"),
        ({"a": 1, "c": "x"}, "lacks 'b', has also 'c'"),
        (
            {"a": 0.5, "b": "x"},
            r"record 3, column 'a': must be int64 as in the first record, got float32: 0\.5\. To convert",
        ),
        ({"a": 1, "b": 2}, "column 'b': must be str as in the first record, got int64: 2"),
        ({"a": np.ones((2, 2)), "b": "x"}, r"got an array of float64 with shape \(2, 2\)"),
        (b"raw", "must have the columns 'a', 'b' in the first record, got raw bytes"),
        ({}, "must have at least one column"),
        ({1: 2}, "a column's name must be text, got 1"),
        ([1], "must be a dict of columns, or bytes, got list"),
        ("text", "must be a dict of columns, or bytes, got str"),
    ],
    ids=_named,
)
def test_a_record_must_have_the_columns_of_the_first_one(record: Any, message: str) -> None:
    first = encode_record({"a": 1, "b": "x"}, 0, None)
    with pytest.raises(ConfigError, match=message):
        encode_record(record, 3, first.columns)


def test_whole_numbers_may_stand_among_floats_and_short_arrays_among_long_ones() -> None:
    columns = encode_record({"a": 0.5, "b": np.ones((2, 2)), "c": [1]}, 0, None).columns
    forms = encode_record({"a": 1, "b": np.arange(2, dtype=np.int32), "c": []}, 1, columns).forms
    assert forms == {
        "a": ("float", 1),
        "b/data": ("bytes", 1),
        "b/dtype": ("bytes", 1),
        "b/shape": ("int64", 1),
        "c": ("int64", 0),
    }


def test_raw_records_and_columns_are_not_mixed() -> None:
    assert encode_record(bytearray(b"abc"), 0, None).columns is RAW
    with pytest.raises(ConfigError, match="record 1: must be raw bytes as the first record, got a dict"):
        encode_record({"a": 1}, 1, RAW)


def test_features_of_an_array_must_not_have_the_name_of_another_column() -> None:
    with pytest.raises(ConfigError, match=r"record 0, column 'a/data': .*another column, 'a/data'"):
        encode_record({"a": np.ones((2, 2)), "a/data": b""}, 0, None)


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("bytes", [], {"x": []}),
        ("str", [], {"x": []}),
        ("int64", [], {"x": []}),
        ("float32", [], {"x": []}),
        ("float32", 1, {"x": [1.0]}),
        ("float32", np.array([0.5, 0.25]), {"x": [0.5, 0.25]}),
        ("float32", np.arange(2), {"x": [0.0, 1.0]}),
        ("int64", np.array([True, False]), {"x": [1, 0]}),
        ("int64", np.array([3], np.uint64), {"x": [3]}),
        ("array", [1, 2], {"x/data": [np.arange(1, 3).tobytes()], "x/dtype": [b"<i8"], "x/shape": [2]}),
        ("array", np.float32(2), {"x/data": [np.float64(2).tobytes()], "x/dtype": [b"<f8"]}),
    ],
)
def test_a_schema_converts_values_to_its_kinds(kind: str, value: Any, stored: dict[str, Any]) -> None:
    assert _features(value, {"x": kind}) == stored


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bytes", "text"),
        ("str", b"bytes"),
        ("int64", 0.5),
        ("int64", np.array([0.5])),
        ("int64", np.ones((2, 2), int)),
        ("float32", "1"),
        ("array", b"12"),
        ("array", []),
    ],
)
def test_a_schema_refuses_other_values(kind: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"record 0, column 'x': must be {kind} as in the schema, got "):
        _features(value, {"x": kind})


@pytest.mark.parametrize("schema", [{}, {"x": "int32"}, {1: "int64"}, ["x"]])
def test_a_schema_names_columns_and_known_kinds(schema: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="schema"):
        emlio.Writer(tmp_path / "data", schema=schema)
    assert not (tmp_path / "data").exists()


def test_buffers_may_be_changed_after_the_call(tmp_path: Path) -> None:
    buffer, array = bytearray(100_000), np.zeros(50_000, np.int64)
    with emlio.Writer(tmp_path) as writer:
        for number in range(3):
            buffer[0] = array[0] = number
            writer.write({"b": buffer, "v": memoryview(buffer), "a": array})
        buffer[0] = array[0] = 99
    shard = tmp_path / "shard-00000-of-00001.tfrecord"
    records = read_tfrecord(shard)
    for number, record in enumerate(records):
        found = parse_example(memoryview(record))
        assert [found["b"][0][0], found["v"][0][0], found["a"][0]] == [number] * 3


@pytest.fixture
def without_pillow() -> Iterator[None]:
    held = {name: sys.modules.pop(name) for name in list(sys.modules) if name == "PIL" or name.startswith("PIL.")}
    yield
    sys.modules.update(held)


@pytest.mark.usefixtures("without_pillow")
def test_pillow_is_not_imported() -> None:
    _features(b"x")
    with pytest.raises(ConfigError, match=_ALLOWED):
        _features(object())
    assert "PIL.Image" not in sys.modules
