"""Columns as a pipeline's sources take them: one kind and one shape from the first batch to the last."""

from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError
from emlio.receiver.batches.source_columns import SourceColumns
from emlio.receiver.records.decoded import ABSENT, Decoded

_IMAGE = b"P5\n2 1\n255\nab"


def _decoded(**columns: Any) -> Decoded:
    count = len(next(iter(columns.values())))
    return Decoded(epoch=0, columns=columns, ids=np.arange(count), bad=0)


def _sources(*images: str, vectors: tuple[str, ...] = ()) -> SourceColumns:
    return SourceColumns(images, vectors)


def _fit(sources: SourceColumns, **columns: Any) -> Any:
    decoded = _decoded(**columns)
    assert sources.faults(decoded) == {}
    return sources.fit(decoded)


def test_bytes_become_arrays_on_the_same_memory() -> None:
    memory = memoryview(bytearray(b"abcdef"))
    fitted = _fit(_sources(), name=[memory[:3], memory[3:3], memory[3:]])["name"]
    memory[0] = ord("x")
    assert [bytes(value) for value in fitted] == [b"xbc", b"", b"def"]
    assert all(value.dtype == np.uint8 for value in fitted)


def test_one_number_a_record_is_a_scalar_several_are_a_vector() -> None:
    fitted = _fit(_sources(), one=np.arange(3), two=np.zeros((3, 2), np.float32))
    assert fitted["one"].shape == (3,)
    assert (fitted["two"].shape, fitted["two"].dtype) == ((3, 2), np.float32)


def test_a_feature_said_to_vary_is_a_vector_whatever_a_batch_holds() -> None:
    sources = _sources(vectors=("v",))
    assert _fit(sources, v=np.arange(3))["v"].shape == (3, 1)
    assert _fit(sources, v=np.zeros((3, 2), np.int64))["v"].shape == (3, 2)
    ragged = [np.arange(size) for size in (0, 1, 4)]
    assert [value.shape for value in _fit(sources, v=ragged)["v"]] == [(0,), (1,), (4,)]


@pytest.mark.parametrize(
    ("column", "places", "held"),
    [
        ([np.arange(1), np.arange(2), np.arange(1)], [1], 2),
        ([np.arange(0), np.arange(1), np.arange(1)], [0], 0),
        (np.zeros((3, 2), np.int64), [0, 1, 2], 2),
    ],
)
def test_a_record_with_more_or_fewer_numbers_than_those_before_does_not_fit(
    column: Any, places: list[int], held: int
) -> None:
    sources = _sources()
    assert _fit(sources, label=np.arange(5))["label"].shape == (5,)
    faults = sources.faults(_decoded(label=column))
    assert list(faults) == places
    for reason in faults.values():
        assert reason.startswith(f"feature 'label' must hold 1 numbers as in other records, got {held}.")


def test_in_the_first_batch_what_most_records_hold_is_usual() -> None:
    sources = _sources()
    decoded = _decoded(label=[np.arange(1), np.arange(2), np.arange(2), np.arange(3)])
    assert list(sources.faults(decoded)) == [0, 3]
    left = decoded.take(np.array([1, 2]), 2)
    assert sources.fit(left)["label"].tolist() == [[0, 1], [0, 1]]


def test_what_is_left_of_a_batch_with_odd_records_has_the_shape_of_every_other() -> None:
    sources = _sources()
    decoded = _decoded(label=[np.array([7]), np.arange(2), np.array([9])], name=[[b"a"], [b"b"], []])
    assert sources.faults(decoded) == {
        1: "feature 'label' must hold 1 numbers as in other records, got 2. If the pipeline accepts "
        "any number, name the feature in inputs(vectors=...)",
        2: "feature 'name' must hold one bytes value for a pipeline, holds 0",
    }
    fitted = sources.fit(decoded.take(np.array([0]), 2))
    assert fitted["label"].tolist() == [7]
    assert [bytes(value) for value in fitted["name"]] == [b"a"]


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        (np.arange(2), np.zeros(3, np.float32), "must hold int64 as in earlier batches, got float32"),
        (np.arange(2), [b"a", b"b", b"c"], "must hold int64 as in earlier batches, got bytes"),
        ([b"a"], np.arange(3), "must hold bytes as in earlier batches, got int64"),
        ([np.arange(2)], [np.zeros(1, np.float32)] * 3, "must hold int64 as in earlier batches, got float32"),
    ],
)
def test_a_batch_of_another_kind_than_those_before_does_not_fit(first: Any, then: Any, said: str) -> None:
    sources = _sources(vectors=("x",))
    _fit(sources, x=first)
    assert sources.faults(_decoded(x=then)) == dict.fromkeys(range(3), f"feature 'x' {said}")


def test_an_image_must_be_whole_and_the_first_reason_is_told() -> None:
    sources = _sources("image")
    decoded = _decoded(
        image=[_IMAGE, _IMAGE[:-1], [_IMAGE], [_IMAGE, _IMAGE], b""],
        label=[np.arange(1), np.arange(1), np.arange(1), np.arange(2), np.arange(1)],
    )
    faults = sources.faults(decoded)
    assert list(faults) == [1, 3, 4]
    assert faults[1].startswith("image: a PNM must have")
    assert faults[3] == "feature 'image' must hold one bytes value for a pipeline, holds 2"
    assert faults[4] == "image: an image must have bytes, this one is empty"


def test_numbers_are_no_images() -> None:
    with pytest.raises(ConfigError, match="feature 'image' must hold images, got int64"):
        _sources("image").faults(_decoded(image=np.arange(3)))


@pytest.mark.parametrize(
    ("name", "value"),
    [("image/filename", b"cats/1.jpg"), ("image/filename", memoryview(b"cats/1.jpg")), ("__key__", "cats/1.jpg")],
)
def test_what_is_wrong_with_a_record_is_told_with_the_name_that_it_has(name: str, value: object) -> None:
    decoded = Decoded(epoch=0, columns={name: [value, ABSENT]}, ids=np.arange(2), bad=0)
    assert decoded.with_paths({0: "bad", 1: "bad"}) == {0: "cats/1.jpg: bad", 1: "bad"}
