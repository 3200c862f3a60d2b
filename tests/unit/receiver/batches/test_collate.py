"""A batch from its samples: what is stacked, what stays a list, and what cannot be put together."""

from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError
from emlio.receiver.batches.collate import default_collate


def test_nested_samples_are_stacked_element_by_element() -> None:
    samples = [
        {"image": np.full((2, 2), number), "meta": (number, [0.5 * number, f"n{number}"])} for number in range(3)
    ]
    made = default_collate(samples, None)
    assert made["image"].shape == (3, 2, 2)
    numbers, (halves, names) = made["meta"]
    assert (numbers.tolist(), halves.tolist(), names) == ([0, 1, 2], [0.0, 0.5, 1.0], ["n0", "n1", "n2"])
    assert isinstance(made["meta"], tuple)
    assert isinstance(made["meta"][1], list)


@pytest.mark.parametrize(
    "samples", [[b"a", b"bb"], ["a", "bb"], [memoryview(b"a"), memoryview(b"bb")], [None, None], [object(), object()]]
)
def test_what_cannot_be_stacked_stays_a_list(samples: list[Any]) -> None:
    assert default_collate(samples, None) == samples


@pytest.mark.parametrize(
    ("samples", "dtype"),
    [
        ([1, 2], np.int64),
        ([True, False], np.bool_),
        ([1, 2.5], np.float64),
        ([np.float32(1), np.float32(2)], np.float32),
    ],
)
def test_numbers_keep_their_kind(samples: list[Any], dtype: type[np.generic]) -> None:
    made = default_collate(samples, None)
    assert (made.dtype, made.tolist()) == (dtype, samples)


def test_a_tensor_is_made_of_what_is_stacked_and_tensors_are_stacked_by_their_own_kind() -> None:
    assert default_collate([1, 2], lambda array: ("tensor", array.tolist())) == ("tensor", [1, 2])

    class Own:
        """A tensor as far as collation knows one."""

        shape = (2,)

        def __init__(self, values: list[int]) -> None:
            self.values = values

        def new_empty(self, shape: tuple[int, ...]) -> "Own":
            assert shape == (2, 2)
            return Own([])

        def __setitem__(self, place: int, sample: "Own") -> None:
            assert place == len(self.values) // 2
            self.values += sample.values

    made = default_collate([Own([1, 2]), Own([3, 4])], None)
    assert isinstance(made, Own)
    assert made.values == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("samples", "what"),
    [
        ([np.zeros(2), np.zeros(3)], "arrays must have the same shape"),
        ([(1, 2), (1,)], "must have equal lengths"),
        ([[1], [1, 2]], "must have equal lengths"),
    ],
)
def test_what_differs_in_shape_needs_the_users_own_collation(samples: list[Any], what: str) -> None:
    with pytest.raises(ConfigError, match=f"{what}.*collate_fn that pads them"):
        default_collate(samples, None)


@pytest.mark.parametrize(
    ("samples", "column"),
    [
        ([(1, 2.5), (1, None)], [2.5, None]),
        ([[1, None], [1, b"x"]], [None, b"x"]),
        ([(1, None), (1, None)], [None, None]),
    ],
)
def test_what_a_record_lacks_may_be_an_element_of_a_sample(samples: list[Any], column: list[Any]) -> None:
    first, second = default_collate(samples, None)
    assert (first.tolist(), second) == ([1, 1], column)


@pytest.mark.parametrize("samples", [["a", "b"], ["a", None]])
def test_arrays_of_text_are_no_tensors(samples: list[Any]) -> None:
    def make(array: Any) -> Any:
        assert array.dtype.kind != "U", "PyTorch has no text"
        return array.tolist()

    given = [None if text is None else np.array([text]) for text in samples]
    made = default_collate([{"n": np.array([1]), "t": text} for text in given], make)
    assert made["n"] == [[1], [1]]
    assert [text if text is None else text[0] for text in made["t"]] == samples


@pytest.mark.parametrize(
    ("samples", "what"),
    [
        ([3, None], "got int and NoneType"),
        ([None, 3], "got NoneType and int"),
        ([np.zeros(2), {"a": 1}], "got ndarray and dict"),
        ([(1, 2), 3], "got tuple and int"),
        ([(1, 2), (1, "two")], "got int and str"),
        ([{"a": 1}, {"b": 1}], r"equal keys, got \['a'\] and \['b'\]"),
    ],
)
def test_samples_of_different_kinds_are_an_error_that_names_both(samples: list[Any], what: str) -> None:
    with pytest.raises(ConfigError, match=f"{what}.*collate_fn that knows"):
        default_collate(samples, None)
