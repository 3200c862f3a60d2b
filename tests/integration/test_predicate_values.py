"""The columns and values that predicates compare: names, 64-bit numbers, times, bytes, labels.

Does not cover: daemons (test_loader_predicates), kept columns (test_predicates_kept).
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.example.encode import encode_example
from emlio.index.opening import open_dataset
from emlio.reading.columns import find_matches
from emlio_testing.datasets import write_tfrecord
from emlio_testing.format_files import tar_of


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def _lines(folder: Path, *rows: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def _chosen(folder: Path, predicate: str, cache: Path) -> list[int]:
    with open_dataset("data", folder, cache) as dataset:
        bits = find_matches(dataset, predicate, cache_dir=cache).bits
        return np.flatnonzero(np.unpackbits(bits, count=dataset.records, bitorder="little")).tolist()


def test_a_datasets_own_columns_win_over_those_of_the_index(tmp_path: Path, cache: Path) -> None:
    rows = [{"number": 9 - n, "size": 1, "shard": "mine"} for n in range(10)]
    folder = _lines(tmp_path / "data", *rows)
    assert _chosen(folder, "number >= 7", cache) == [0, 1, 2]
    assert _chosen(folder, "__number__ >= 7", cache) == [7, 8, 9]
    assert _chosen(folder, "size == 1 and shard == 'mine'", cache) == [*range(10)]
    assert _chosen(folder, "__size__ > 30 and __shard__ == 'a.jsonl' and number < 2", cache) == [8, 9]


def test_a_name_that_may_mean_either_is_refused(tmp_path: Path, cache: Path) -> None:
    folder = _lines(tmp_path / "data", {"a": 1}, {"__size__": 5, "a": 2})
    with pytest.raises(
        ConfigError, match=r"'number' must be written `__number__` for what the index knows: in the format jsonl"
    ):
        _chosen(folder, "number > 0", cache)
    with pytest.raises(ConfigError, match="'__size__' in a predicate is what the index knows, and data has a column"):
        _chosen(folder, "__size__ > 0", cache)
    assert _chosen(folder, "__number__ > 0", cache) == [1]


def test_a_feature_of_some_examples_is_not_taken_for_what_the_index_knows(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "data").mkdir()
    records = [encode_example({"x": n} | ({"number": 70} if n == 50 else {})) for n in range(100)]
    write_tfrecord(tmp_path / "data" / "a.tfrecord", records)
    with pytest.raises(
        ConfigError, match=r"'number' must be written `__number__` .* in the format tfrecord each record"
    ):
        _chosen(tmp_path / "data", "number >= 60", cache)
    assert _chosen(tmp_path / "data", "__number__ >= 98", cache) == [98, 99]


def test_a_column_that_few_records_have_is_found(tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows: list[dict[str, Any]] = [{"a": n} for n in range(500)]
    rows[333]["rare"], rows[334]["rare"] = 7, None
    folder = _lines(tmp_path / "data", *rows)
    assert _chosen(folder, "rare == 7 or rare != 7", cache) == [333]
    assert "no record of data that was looked at has 'rare': all are read to look for it" in caplog.text
    with pytest.raises(
        ConfigError,
        match=r"data has no 'rear'; did you mean 'rare'|which has __number__, __shard__, __size__, a; data has no",
    ):
        _chosen(folder, "rear == 7", cache)


def test_whole_numbers_of_64_bits_and_floats_beside_them_are_exact(tmp_path: Path, cache: Path) -> None:
    values = [2**63, 2**64 - 1, 5, -(2**63), 2**53 + 1, 2.0**53, 0.5, None]
    folder = _lines(tmp_path / "data", *({"u": value} for value in values))
    for _ in range(2):  # the second time as it was kept
        assert _chosen(folder, "u >= 5", cache) == [0, 1, 2, 4, 5]
        assert _chosen(folder, f"u == {2**64 - 1} or u in {{{-(2**63)}, 0.5}}", cache) == [1, 3, 6]
        assert _chosen(folder, f"u > {2**53}", cache) == [0, 1, 4]
        assert _chosen(folder, f"u <= {2**53}.0", cache) == [2, 3, 5, 6]
        assert _chosen(folder, "not u >= 5", cache) == [3, 6, 7]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (2**64, "whole numbers from -2\\^63 to 2\\^64 - 1 to be compared, holds 18446744073709551616"),
        (-(2**63) - 1, "holds -9223372036854775809"),
        ("x" * 1025, "texts of at most 1 KiB to be compared, holds a value of type str of 1,025 bytes"),
        ([1, 2], "single numbers or texts to be compared, holds 2 values"),
        ({"z": 1}, "holds a value of type dict"),
    ],
)
def test_a_value_that_cannot_be_held_is_an_error_that_names_its_record(
    tmp_path: Path, cache: Path, value: object, words: str
) -> None:
    folder = _lines(tmp_path / "data", {"v": 1}, {"v": value}, {"w": 1})
    for predicate in ("v >= 0", "v != 1"):
        with pytest.raises(DatasetError, match=rf"shard a\.jsonl of .*: record 1: column 'v' must hold .*{words}"):
            _chosen(folder, predicate, cache)


@pytest.mark.parametrize("kind", ["M8", "m8"])
def test_times_of_several_units_are_refused_and_factors_of_units_count(kind: str, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(3):
        np.savez(tmp_path / "data" / f"{number}.npz", t=np.array(number, f"{kind}[10s]"))
    assert _chosen(tmp_path / "data", "t >= 10 and t < 20", cache) == [1]
    np.savez(tmp_path / "data" / "3.npz", t=np.array(1, f"{kind}[ms]"))
    with pytest.raises(DatasetError, match="column 't' must hold times of one unit to be compared, holds s and ms"):
        _chosen(tmp_path / "data", "t >= 10", cache)


def test_times_and_bytes_that_are_no_text_are_compared(tmp_path: Path, cache: Path) -> None:
    pa: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    columns = {
        "bin": pa.array([b"a", b"\xff\xfe", None, b"x"]),
        "us": pa.array([1, 2_000_000, None, 4], pa.timestamp("us")),
        "day": pa.array([1, 2, None, 400], pa.date32()),
        "gap": pa.array([1, 2, None, 4], pa.duration("ms")),
    }
    (tmp_path / "data").mkdir()
    parquet.write_table(pa.table(columns), tmp_path / "data" / "a.parquet")
    for predicate, wanted in (
        ("bin != 'a'", [1, 3]),
        ("us > 1", [1, 3]),
        ("us >= '1970-01-01T00:00:02'", [1]),
        ("us < '1970-01-01T00:00:00.0000015'", [0]),
        ("day >= '1970-01-03'", [1, 3]),
        ("day in {'1971-02-05', 1}", [0, 3]),
        ("day > '1970-01-02T12:00'", [1, 3]),
        ("day < '1971'", [0, 1]),
        ("gap > 1", [1, 3]),
    ):
        assert _chosen(tmp_path / "data", predicate, cache) == wanted, predicate
    with pytest.raises(ConfigError, match="'day' holds times, compare it with one such as '2026-01-31T12:00'"):
        _chosen(tmp_path / "data", "day > 'monday'", cache)


def test_labels_of_tars_are_those_of_the_loader(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "data").mkdir()
    members = [("0.cls", b"1\n"), ("0.txt", b"x"), ("1.cls", b"2"), ("2.txt", b"z"), ("2.cls", b"1"), ("3.txt", b"q")]
    (tmp_path / "data" / "a.tar").write_bytes(tar_of(members))
    for predicate, wanted in (
        ("label == 1", [0, 2]),
        ("label != 1", [1]),
        ("`image/class/label` in {2}", [1]),
        ("txt != 'x'", [2, 3]),
        ("not (label == 1)", [1, 3]),
    ):
        assert _chosen(tmp_path / "data", predicate, cache) == wanted, predicate


def test_own_arrays_win_over_the_class_of_their_folder(tmp_path: Path, cache: Path) -> None:
    for number in range(6):
        path = tmp_path / "data" / "ab"[number % 2] / f"{number}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **({"label": number + 10} if number < 4 else {"other": 1}))
    order = [0, 2, 4, 1, 3, 5]
    assert [order[place] for place in _chosen(tmp_path / "data", "label >= 12", cache)] == [2, 3]
