"""Arrays that lie in three features: put together of them, chosen, broken."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from emlio.errors import DatasetError
from emlio.example import FeatureValue, Piece, encode_example
from emlio.formats.tfrecord.example_form import ExampleRecords
from emlio.prepare.targets.example_form import array_features
from emlio_testing.example_records import piece_of


def _columns(records: Sequence[Mapping[str, FeatureValue]], fields: list[str] | None = None) -> dict[str, Any]:
    return ExampleRecords(fields).columns([piece_of([encode_example(record) for record in records])], len(records))


def _faults(records: Sequence[Mapping[str, FeatureValue]], fields: list[str] | None = None) -> dict[int, str]:
    return dict(ExampleRecords(fields).faults([piece_of([encode_example(record) for record in records])]))


def _stored(name: str, array: npt.ArrayLike) -> dict[str, FeatureValue]:
    return array_features(name, np.asarray(array), whole=True)


@pytest.mark.parametrize("count", [1, 3, 30])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "<f8", ">i2", "complex64", "<U3", "S2", "<M8[D]"])
@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (0, 4), (2, 1, 2)])
def test_arrays_of_one_shape_are_stacked_with_their_type(count: int, dtype: str, shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape))
    arrays = [np.asarray(np.arange(size).reshape(shape) % 2 + number).astype(dtype) for number in range(count)]
    columns = _columns([{**_stored("array", array), "label": number} for number, array in enumerate(arrays)])
    assert list(columns) == ["array", "label"]
    assert columns["array"].dtype == np.dtype(dtype).newbyteorder("=")
    assert columns["array"].shape == (count, *shape)
    assert np.array_equal(columns["array"], np.stack(arrays))
    assert columns["array"].flags.writeable


def test_ragged_arrays_are_a_list_as_ragged_numbers_are() -> None:
    arrays = [np.ones((2, 3), np.float16), np.ones((1, 3), np.float16), np.ones((2, 3), np.float32)]
    column = _columns([_stored("a/b", array) for array in arrays])["a/b"]
    assert isinstance(column, list)
    assert [(array.shape, array.dtype) for array in column] == [(array.shape, array.dtype) for array in arrays]
    assert all(array.flags.writeable and array.flags.aligned for array in column)


def test_fields_choose_arrays_and_still_their_features() -> None:
    records = [{**_stored("x", np.full((2, 2), number)), "y": number} for number in range(3)]
    assert list(_columns(records, ["y", "x"])) == ["y", "x"]
    assert _columns(records, ["x"])["x"].tolist() == [[[number] * 2] * 2 for number in range(3)]
    raw = _columns(records, ["x/shape", "x/dtype"])
    assert raw["x/shape"].tolist() == [[2, 2]] * 3
    assert [bytes(text) for text in raw["x/dtype"]] == [b"<i8"] * 3
    both = _columns(records, ["x/data", "x"])
    assert list(both) == ["x/data", "x"]
    assert np.frombuffer(both["x/data"][2], np.int64).tolist() == [2] * 4


def test_features_that_are_no_parts_of_an_array_stay() -> None:
    record = {"a/data": b"1", "b/dtype": b"<i4", "c": 1, "c/data": b"2", "c/dtype": b"<i4", "/data": b"", "/dtype": b""}
    assert sorted(_columns([record])) == sorted(record)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"x/data": b"123"}, r"the array 'x' must have the bytes of int64 \(2, 2\), has 3"),
        ({"x/shape": np.array([2, 3])}, r"must have the bytes of int64 \(2, 3\), has 32"),
        ({"x/shape": np.array([-1, 2])}, "lengths must be whole numbers of at least 0"),
        ({"x/shape": np.array([1 << 62, 1 << 62])}, "the array 'x' must have the bytes of int64"),
        ({"x/dtype": b"no such"}, r"feature 'x/dtype' must be the type of an array, got b'no such'\. To load the"),
        ({"x/dtype": b"O"}, "must be the type of an array, got b'O'"),
        ({"x/dtype": b"i4,i4"}, "must be the type of an array, got b'i4,i4'"),
        ({"x/dtype": b"<U0"}, "must be the type of an array"),
        ({"x/dtype": b"\xff"}, "must be the type of an array"),
        ({"x/dtype": [b"<i8", b"<i8"]}, "'x/dtype' must be one value of bytes, as part of an array, got 2 values"),
    ],
    ids=["data", "shape", "negative", "huge", "name", "objects", "structure", "empty", "bytes", "several"],
)
@pytest.mark.parametrize("fields", [None, ["x"]], ids=["all", "chosen"])
def test_a_record_whose_parts_do_not_fit_is_the_one_that_is_blamed(
    change: dict[str, Any], reason: str, fields: list[str] | None
) -> None:
    records = [_stored("x", np.full((2, 2), number)) for number in range(4)]
    records[2] = {**records[2], **change}
    with pytest.raises(DatasetError, match=f"record 2 of the batch: .*{reason}"):
        _columns(records, fields)
    faults = _faults(records, fields)
    assert list(faults) == [2]
    pieces = piece_of([encode_example(record) for number, record in enumerate(records) if number != 2])
    assert ExampleRecords(fields).columns([pieces], 3)["x"].shape == (3, 2, 2)


def test_only_arrays_that_do_not_fit_are_faults() -> None:
    records = [{**_stored("x", np.zeros(2)), "y": number} for number in range(5)]
    records[1] = {**records[1], "y": b"text"}
    records[3] = {**records[3], "x/data": b"1"}
    assert list(_faults(records)) == [3]
    assert _faults(records, ["y"]) == {}
    assert _columns(records, ["y"])["y"] == [0, b"text", 2, 3, 4]
    del records[2]["x/dtype"]
    assert list(_faults(records)) == [2, 3]


@pytest.mark.parametrize("fields", [None, ["x", "y"]], ids=["all", "chosen"])
def test_an_array_that_a_record_lacks_is_none(fields: list[str] | None) -> None:
    records: list[dict[str, Any]] = [
        {**_stored("x", np.arange(number + 1)), "y": number} if number % 2 else {"y": number} for number in range(4)
    ]
    columns = _columns(records, fields)
    assert columns["y"].tolist() == [0, 1, 2, 3]
    assert [None if one is None else one.tolist() for one in columns["x"]] == [None, [0, 1], None, [0, 1, 2, 3]]


def test_a_name_may_be_an_array_in_one_record_and_a_feature_in_another() -> None:
    columns = _columns([{"x": 5}, _stored("x", np.zeros(2)), {"y": 1}], ["x"])
    assert columns["x"][0] == 5
    assert columns["x"][1].tolist() == [0, 0]
    assert columns["x"][2] is None


def test_records_that_are_no_examples_are_told_as_before() -> None:
    broken = Piece(buffer=memoryview(b"\xff" * 8), starts=np.array([0]), ends=np.array([8]), slots=np.array([0]))
    with pytest.raises(DatasetError, match=r"record 0 of the batch: not a tf.train.Example"):
        ExampleRecords(["x"]).columns([broken], 1)
    assert list(ExampleRecords(["x"]).faults([broken])) == [0]


def test_the_order_of_columns_is_that_of_names() -> None:
    names = list(_columns([{**_stored("b", np.zeros(2)), "a": 1, "b/more": 2, "c": 3}]))
    assert all(one < other for one, other in pairwise(names))
    assert names == ["a", "b", "b/more", "c"]


@pytest.mark.parametrize(
    "shape",
    [np.zeros(0, np.int64), [2.0], [1] * 32, [1] * 64, [1] * 100, [2**62, 4], [2**63 - 1], [0, 2**62, 2**62]],
    ids=["none", "no whole numbers", "32", "64", "100", "2^64", "2^63 - 1", "2^124 of nothing"],
)
@pytest.mark.parametrize("count", [1, 2])
def test_a_hostile_shape_is_a_fault_of_its_record(shape: FeatureValue, count: int) -> None:
    good = {**_stored("a", np.zeros(2, np.float32))}
    bad = {**good, "a/shape": shape}
    with pytest.raises(DatasetError, match="record 0 of the batch: the array 'a' must have the bytes of float32"):
        _columns([bad] * count)
    assert list(_faults([bad] * count)) == list(range(count))


@pytest.mark.parametrize("axes", [32, 64, 65])
@pytest.mark.parametrize("count", [1, 2])
def test_an_array_with_more_axes_than_a_batch_can_have_is_a_fault(axes: int, count: int) -> None:
    record = {**_stored("a", np.float32(1)), "a/shape": [1] * axes}
    with pytest.raises(DatasetError, match="at most 31 lengths can be read"):
        _columns([record] * count)
    assert list(_faults([record] * count)) == list(range(count))


def test_an_array_of_one_number_may_have_an_empty_shape() -> None:
    record: dict[str, FeatureValue] = {"a/data": np.float32(3).tobytes(), "a/dtype": b"<f4"}
    record["a/shape"] = np.zeros(0, np.int64)
    assert _columns([record] * 2)["a"].tolist() == [3, 3]
    assert _faults([record] * 2) == {}
