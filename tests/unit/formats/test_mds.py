"""MDS shards: indexes that lie, samples that are damaged, columns."""

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.formats.contents import Contents
from emlio.formats.mds import mds
from emlio_testing.format_files import MemoryFiles, records_in, row_of, write_mds

_COLUMNS: dict[str, tuple[str, int | None]] = {"id": ("int32", 4), "label": ("int", 8), "x": ("jpeg", None)}


def _sample(number: int) -> dict[str, bytes]:
    return {"id": struct.pack("<i", number), "label": struct.pack("<q", -number), "x": b"j" * number}


def _dataset() -> tuple[dict[str, bytes], dict[str, Any]]:
    return write_mds(
        _COLUMNS, {f"shard.{part:05d}.mds": [_sample(part * 3 + n) for n in range(3)] for part in range(2)}
    )


def _with(files: dict[str, bytes], index: Any) -> dict[str, bytes]:
    return {**files, "index.json": json.dumps(index).encode()}


def test_samples_come_in_the_order_of_shards() -> None:
    rows = records_in(mds, _with(*_dataset()))
    assert [(row["id"], row["label"], bytes(row["x"])) for row in rows] == [(n, -n, b"j" * n) for n in range(6)]
    assert [kind.type for kind in (rows[0]["id"].dtype, rows[0]["label"].dtype)] == [np.int32, np.int64]


def test_presets_find_image_and_label() -> None:
    rows = records_in(mds, _with(*_dataset()), fields=["image/encoded", "image/class/label"])
    assert [(bytes(row["image/encoded"]), row["image/class/label"]) for row in rows[:2]] == [(b"", 0), (b"j", -1)]


@pytest.mark.parametrize(
    ("index", "claimed"),
    [
        (b'{"version": 2, "shards": []}', True),
        (b'{"version": 1, "shards": []}', False),
        (b'{"version": 2}', False),
        (b"[]", False),
        (b"nothing", False),
        (b"[" * 100_000, False),
    ],
)
def test_a_folder_is_taken_for_mds_by_its_index(index: bytes, claimed: bool) -> None:
    assert mds.claims(MemoryFiles({"index.json": index})) is claimed
    assert not mds.claims(MemoryFiles({"train/index.json": index}))


Change = Callable[[dict[str, bytes], dict[str, Any]], object]


def _set(name: str, value: Any) -> Change:
    return lambda files, index: index["shards"][1].update({name: value})


def _drop(files: dict[str, bytes], index: dict[str, Any]) -> None:
    del files["shard.00001.mds"]


def _pack(files: dict[str, bytes], index: dict[str, Any]) -> None:
    files["shard.00001.mds.zstd"] = files.pop("shard.00001.mds")
    index["shards"][1] |= {"compression": "zstd", "zip_data": {"basename": "shard.00001.mds.zstd"}}


def _cut(files: dict[str, bytes], index: dict[str, Any]) -> None:
    files["shard.00001.mds"] = files["shard.00001.mds"][:-1]


def _cut_head(files: dict[str, bytes], index: dict[str, Any]) -> None:
    files["shard.00001.mds"] = files["shard.00001.mds"][:3]
    del index["shards"][1]["raw_data"]["bytes"]


def _cut_table(files: dict[str, bytes], index: dict[str, Any]) -> None:
    files["shard.00001.mds"] = files["shard.00001.mds"][:10]
    del index["shards"][1]["raw_data"]["bytes"]


def _bound(place: int, value: int) -> Change:
    def change(files: dict[str, bytes], index: dict[str, Any]) -> None:
        data = bytearray(files["shard.00001.mds"])
        struct.pack_into("<I", data, 4 + 4 * place, value)
        files["shard.00001.mds"] = bytes(data)

    return change


def _twice(files: dict[str, bytes], index: dict[str, Any]) -> None:
    index["shards"].append(index["shards"][0])


def _columns_all(name: str, value: Any) -> Change:
    def change(files: dict[str, bytes], index: dict[str, Any]) -> None:
        for shard in index["shards"]:
            shard[name] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("samples", 4), r"shard\.00001\.mds: must hold 4 samples as index\.json says, holds 3"),
        (_set("samples", -1), "must hold -1 samples"),
        (_set("samples", "3"), r"index\.json must describe MDS shards"),
        (_set("column_names", ["id", "label"]), "shard.00001.mds must have an encoding and a size for each column"),
        (_set("column_encodings", ["int32", "int", "png"]), "all shards must have the same columns, those of shard.00001"),
        (_set("format", "json"), r"shards must be of format mds, shard\.00001\.mds is json"),
        (_set("raw_data", {"basename": "../other.mds"}), r"must hold every shard of index\.json, lacks \.\./other\.mds"),
        (_drop, r"must hold every shard of index\.json, lacks shard\.00001\.mds"),
        (_pack, r"compressed with zstd\. Convert them once: emlio convert DIR OUT$"),
        (_cut, r"shard\.00001\.mds: must have \d+ bytes as index\.json says, has \d+"),
        (_cut_head, "must begin with the number of its samples, has 3 bytes"),
        (_cut_table, r"must have the begins of 3 samples, ends at byte 10"),
        (_bound(0, 20), r"must follow each other from byte 20 or later to \d+|columns must fill|must end within"),
        (_bound(0, 19), r"must follow each other from byte 20 or later"),
        (_bound(1, 1 << 31), "its samples must follow each other"),
        (_bound(3, 100), "its samples must follow each other"),
        (_twice, r"index\.json must name each shard once, shard\.00000\.mds is there twice"),
        (_columns_all("column_names", ["id", "id", "x"]), "must have columns of different names"),
        (_columns_all("column_sizes", [8, 8, None]), "column 'id' of int32 must have the size 4, has 8"),
        (_columns_all("column_sizes", [4, 8, -5]), "column 'x' of jpeg must have the size None, has -5"),
        (_columns_all("column_sizes", [None, 8, None]), "column 'id' of int32 must have the size 4, has None"),
        (_columns_all("column_encodings", ["ndarray:what:2", "int", "jpeg"]), "encoding that is not valid, 'ndarray:what:2'"),
        (_columns_all("column_encodings", ["ndarray:int8:a", "int", "jpeg"]), "encoding that is not valid"),
        (_columns_all("column_encodings", ["ndarray:int8:-4", "int", "jpeg"]), "encoding that is not valid"),
        (lambda _, index: index.update(version=3), "must be of version 2"),
        (lambda _, index: index.update(shards=[]), "must be of version 2 with a shard at least"),
    ],
)  # fmt: skip
def test_an_index_that_does_not_fit_is_refused(change: Change, message: str) -> None:
    files, index = _dataset()
    change(files, index)
    with pytest.raises(DatasetError, match=message):
        records_in(mds, _with(files, index))


def test_pickled_columns_are_refused_and_can_be_left_out() -> None:
    columns: dict[str, tuple[str, int | None]] = {"a": ("pkl", None), "b": ("str", None)}
    dataset = _with(*write_mds(columns, {"s.mds": [{"a": b"cos\nsystem\n", "b": b"text"}]}))
    with pytest.raises(ConfigError, match="column 'a' is encoded as 'pkl', which cannot be read here; choose other"):
        records_in(mds, dataset)
    assert records_in(mds, dataset, fields=["b"]) == [{"b": "text"}]


def test_a_column_that_is_not_there_is_the_callers_to_mend() -> None:
    dataset = _with(*write_mds({"image": ("bytes", None)}, {"s.mds": [{"image": b"x"}]}))
    said = r"has 'image', 'image/encoded', got 'image/encodd'; did you mean 'image/encoded'\?$"
    with pytest.raises(ConfigError, match=said):
        records_in(mds, dataset, fields=["image/encodd"])


_VALUES = [
    ("str", b"\xff"),
    ("str_int", b"1x"),
    ("str_int", b"9" * 5000),
    ("str_float", b""),
    ("str_decimal", b"abc"),
    ("json", b"{"),
    ("json", b"[" * 100_000),
    ("ndarray", b""),
    ("ndarray", b"\x07\x04\x01\x00"),
    ("ndarray", b"\x08\x04\x05\x00"),
    ("ndarray:int16", b"\x04\x02\x00"),
    ("ndarray:int16", b"\xff\x02\x00"),
    ("pil", b"\1\0\0\0\1\0\0\0\1\0\0\0L"),
    ("pil", b"\1\0\0\0\1\0\0\0\1\0\0\0Z\0"),
    ("pil", b"\1\0"),
    ("pil", b"\1\0\0\0\1\0\0\0\1\0\0\0\xff\0"),
]


@pytest.mark.parametrize(("encoding", "value"), _VALUES)
def test_values_that_cannot_be_decoded_are_named_by_their_column(encoding: str, value: bytes) -> None:
    dataset = _with(*write_mds({"c": (encoding, None)}, {"s.mds": [{"c": value}]}))
    with pytest.raises(DatasetError, match="record 0 of the batch: column 'c' cannot be decoded"):
        records_in(mds, dataset)


def test_a_sample_must_be_filled_by_its_columns() -> None:
    files, index = _dataset()
    form = mds.form(
        Contents(format="mds", settings=mds.layout(MemoryFiles(_with(files, index)), {}, "d").settings), None
    )
    whole = struct.pack("<I", 2) + struct.pack("<iq", 5, 6) + b"jj"
    assert row_of(form, whole)["label"] == 6
    for damaged in (whole[:-1], whole + b"x", whole[:3], b"", struct.pack("<I", 1 << 31) + whole[4:]):
        with pytest.raises(DatasetError, match="must"):
            row_of(form, damaged)


@pytest.mark.parametrize(
    "settings",
    [b"", b"{}", b'{"names":["a"],"encodings":[],"sizes":[]}', b'{"names":["a"],"encodings":["int8"],"sizes":[9]}'],
)
def test_settings_from_a_peer_are_checked(settings: bytes) -> None:
    with pytest.raises(DatasetError, match="MDS"):
        mds.form(Contents(format="mds", settings=settings), None)


def test_shards_in_folders_are_found_by_their_paths() -> None:
    files, index = write_mds(_COLUMNS, {"1/s.mds": [_sample(2)], "0/s.mds": [_sample(1)]})
    assert [row["id"] for row in records_in(mds, _with(files, index))] == [1, 2]


@pytest.mark.parametrize("beside", ["a.mds", "a.jpg"])
def test_an_index_of_any_size_is_not_read_whole(beside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emlio.formats.mds._MOST_INDEX_BYTES", 1000)
    files = MemoryFiles({"index.json": b" " * 1001, beside: b""})

    def no_read(number: int, offset: int, length: int) -> bytes:
        raise AssertionError(f"{length} bytes of {files.names[number]} were read")

    monkeypatch.setattr(files, "read", no_read)
    assert mds.claims(files) is (beside == "a.mds")
    with pytest.raises(DatasetError, match=r"index\.json must have at most 1,000 bytes, has 1,001"):
        mds.layout(files, {}, "data")


@pytest.mark.parametrize("width", [1, 7, 8, 9])
def test_pictures_of_bits_are_read(width: int) -> None:
    pixels = np.random.default_rng(width).random((3, width)) < 0.5
    data = struct.pack("<III", width, 3, 1) + b"1" + np.packbits(pixels, axis=1).tobytes()
    files, index = write_mds({"x": ("pil", None)}, {"shard.00000.mds": [{"x": data}]})
    found = records_in(mds, _with(files, index))[0]["x"]
    assert found.dtype == np.bool_
    np.testing.assert_array_equal(found, pixels)
