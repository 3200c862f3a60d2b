"""Where records lie, looked up in C, beside the same in NumPy.

Covers: shards of one file and of many, arrays of any step, refusals. Does not cover: which records are asked for.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from emlio import native
from emlio.errors import ClosedError
from emlio.index.opening import open_dataset
from emlio.native import library as native_library
from emlio.native.locating import NativeShards
from emlio_testing.datasets import make_dataset

_Ints = npt.NDArray[np.int64]

pytestmark = pytest.mark.skipif(not native.is_used(), reason=f"the C library is not used: {native.why_not()}")


def _ints(*values: int) -> _Ints:
    return np.array(values, np.int64)


@pytest.fixture
def shards() -> NativeShards:
    """Three records of one file, four files of 5 bytes, every second number of an array."""
    return NativeShards(
        [_ints(0, 10, 30), np.broadcast_to(_ints(0), (4,)), np.arange(20, dtype=np.int64)[::2]],
        [_ints(10, 30, 35), np.broadcast_to(_ints(5), (4,)), np.arange(20, dtype=np.int64)[1::2]],
        [0, 1, 5],
        [0, 1, 0],
    )


def test_each_record_has_its_file_and_its_range(shards: NativeShards) -> None:
    numbers, records = _ints(2, 0, 1, 1, 0, 2), _ints(9, 0, 0, 3, 2, 0)
    found = shards.locate(numbers, records)
    assert found is not None
    assert [part.tolist() for part in found] == [[5, 0, 1, 4, 0, 5], [18, 0, 0, 0, 30, 0], [19, 10, 5, 5, 35, 1]]


def test_nothing_is_found_for_nothing(shards: NativeShards) -> None:
    found = shards.locate(_ints(), _ints())
    assert found is not None
    assert [len(part) for part in found] == [0, 0, 0]


@pytest.mark.parametrize("ahead", [0, 20], ids=["at once", "far ahead"])
@pytest.mark.parametrize(
    ("number", "record"), [(3, 0), (-1, 0), (0, 3), (0, -1), (1, 4), (2, 2**62), (2**62, 0), (-(2**62), 1)]
)
def test_what_is_not_there_is_refused(shards: NativeShards, number: int, record: int, ahead: int) -> None:
    numbers, records = np.zeros(ahead + 1, np.int64), np.zeros(ahead + 1, np.int64)
    numbers[-1], records[-1] = number, record
    assert shards.locate(numbers, records) is None
    assert shards.locate(numbers, records[:0]) is None


@pytest.mark.parametrize("array", [np.zeros(3, np.int32), np.zeros((3, 1), np.int64)], ids=["short", "flat"])
def test_arrays_of_another_form_are_refused(array: npt.NDArray[np.int64]) -> None:
    with pytest.raises(ValueError, match="rows of numbers of 64 bits"):
        NativeShards([array], [array], [0], [0])


def test_a_dataset_looks_up_the_same_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_dataset(tmp_path / "set", records=1000, shards=7)
    with open_dataset("set", tmp_path / "set") as dataset:
        draws = np.random.default_rng(4)
        numbers = draws.integers(0, 7, 5000)
        records = draws.integers(0, np.array([shard.records for shard in dataset.shards])[numbers])
        ours = dataset.locate(numbers, records)
        with monkeypatch.context() as patch:
            patch.setattr(native_library, "_LIBRARY", native_library.Library(Path("/nowhere")))
            theirs = dataset.locate(numbers, records)
        assert [part.tolist() for part in ours] == [part.tolist() for part in theirs]
        with pytest.raises(IndexError):
            dataset.locate(_ints(0), _ints(1000))
        with pytest.raises(IndexError):
            dataset.locate(_ints(7), _ints(0))
    with pytest.raises(ClosedError):
        dataset.locate(numbers, records)
