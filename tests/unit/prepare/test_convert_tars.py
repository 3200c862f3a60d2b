"""Items as samples of a WebDataset: members, keys, headers, shards."""

import io
import json
import math
import tarfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio.errors import DatasetError
from emlio.example import encode_example
from emlio.formats.tar import tars
from emlio.images.header import picture_extension
from emlio.prepare.sample import Sample
from emlio.prepare.targets.example_form import example_record
from emlio.prepare.targets.shard_file import ShardFile
from emlio.prepare.targets.tally import Record
from emlio.prepare.targets.tar_record import TarRecords, key_of_path, members_of, picture_columns
from emlio.prepare.targets.tar_set import TarShard
from emlio_testing.format_files import records_in
from emlio_testing.pictures import encoded_picture


def _members(**fields: Any) -> dict[str, bytes]:
    sample = Sample(**fields)
    return {name: bytes(data) for name, data in members_of(sample, picture_columns(sample)).items()}


def _npy(data: bytes) -> Any:
    return np.load(io.BytesIO(data), allow_pickle=False)


def _tar(tmp_path: Path, *samples: Sample, numbered: bool = False) -> bytes:
    """Return the tar of these samples."""
    records = TarRecords(numbered=numbered)
    path = tmp_path / "a.tar"
    with ShardFile(path, 1) as file:
        shard = TarShard(file)
        for place, sample in enumerate(samples):
            shard.append(records.record(sample, place))
        shard.commit(verify=True, advance=lambda _: None)
    return path.read_bytes()


def _read(tmp_path: Path, *samples: Sample) -> list[dict[str, Any]]:
    rows = records_in(tars, {"a.tar": _tar(tmp_path, *samples)})
    return [{name: bytes(value) if name != "__key__" else value for name, value in row.items()} for row in rows]


class TestMembers:
    @pytest.mark.parametrize(
        ("form", "extension"),
        [("JPEG", "jpg"), ("PNG", "png"), ("WEBP", "webp"), ("GIF", "gif"), ("BMP", "bmp"), ("TIFF", "tif")],
    )
    def test_a_picture_is_named_by_its_first_bytes(self, form: str, extension: str) -> None:
        picture = encoded_picture(form)
        assert picture_extension(picture) == extension
        assert _members(picture=picture, filename="x.jpeg", label=3) == {extension: picture, "cls": b"3"}

    def test_a_picture_of_a_kind_that_only_its_name_tells_keeps_its_extension(self) -> None:
        picture = encoded_picture("PPM")
        assert _members(picture=picture, filename="d/x.PPM") == {"ppm": picture}

    @pytest.mark.parametrize("picture", [b"", b"no picture", b"\xff\xd8\xff", b"BM of other bytes"])
    def test_bytes_that_are_no_picture_are_refused_as_for_other_targets(self, picture: bytes) -> None:
        with pytest.raises(DatasetError):
            _members(picture=picture, filename="x.jpg")

    def test_columns_are_named_by_what_they_are(self) -> None:
        array, other = np.arange(6, dtype=np.float16).reshape(2, 3), np.array(["2020-01-01"], "M8[D]")
        columns = {
            "caption": "ä\udcff", "age": 7, "big": 1 << 70, "share": 0.1, "known": True, "nothing": None,
            "box": [1, 2], "more": {"a": [1.5, "b"]}, "exact": Decimal("1.10"), "count": np.int8(-3),
            "half": np.float16(0.5), "yes": np.bool_(True), "emb": array, "day": other, "one": other[0],
            "scalar": np.array(4, ">i2"), "raw": b"\0\1", "view": memoryview(b"23"), "nan": math.nan,
        }  # fmt: skip
        found = _members(columns=columns)
        texts = {name: data.decode() for name, data in found.items() if name.endswith(".json")}
        assert {name: json.loads(text) for name, text in texts.items() if name != "nan.json"} == {
            "age.json": 7, "big.json": 1 << 70, "share.json": 0.1, "known.json": True, "nothing.json": None,
            "box.json": [1, 2], "more.json": {"a": [1.5, "b"]}, "count.json": -3, "half.json": 0.5, "yes.json": True,
        }  # fmt: skip
        assert math.isnan(json.loads(texts["nan.json"]))
        assert found["caption.txt"] == b"\xc3\xa4\xff"
        assert found["exact.txt"] == b"1.10"
        assert (found["raw.bin"], found["view.bin"]) == (b"\0\1", b"23")
        for name, value in (("emb", array), ("day", other), ("one", other[0]), ("scalar", np.array(4, ">i2"))):
            back = _npy(found[f"{name}.npy"])
            assert back == value if not np.ndim(value) else np.array_equal(back, value)
            assert back.dtype == value.dtype
        assert len(found) == len(columns)

    def test_the_column_that_is_the_item_has_no_name_of_its_own(self) -> None:
        array = np.arange(3)
        assert _npy(_members(columns={"array": array}, main="array")["npy"]).tolist() == [0, 1, 2]
        assert _members(columns={"data": b"x"}, main="data", filename="b.mp3") == {"mp3": b"x"}
        assert _members(columns={"data": b"x"}, main="data", filename="b") == {"bin": b"x"}
        picture = encoded_picture("PNG")
        assert _members(columns={"data": picture}, main="data", filename="b") == {"png": picture}

    def test_names_that_say_a_kind_are_kept(self) -> None:
        columns = {"seg.png": b"1", "txt": b"2", "json": b"3", "npy": np.arange(2), "TXT.txt": "4", "x.id": b"5"}
        columns["mask"] = encoded_picture("PNG")
        assert list(_members(columns=columns)) == ["seg.png", "txt", "json", "npy", "txt.txt", "x.id.bin", "mask.png"]

    @pytest.mark.parametrize(
        ("columns", "names"),
        [
            ({"Text": "a", "text": "b"}, r"'Text' and 'text' .* both would be \.text\.txt"),
            ({"a/b": "a", "a_b": "b"}, r"'a/b' and 'a_b' .* both would be \.a_b\.txt"),
            ({"jpg": b"a"}, r"'picture' and 'jpg' .* both would be \.jpg"),
        ],
    )
    def test_two_columns_of_one_name_are_named(self, columns: dict[str, Any], names: str) -> None:
        with pytest.raises(DatasetError, match=names):
            _members(columns=columns, picture=encoded_picture("JPEG"), label=1)
        with pytest.raises(DatasetError, match=r"'label' and 'data' .* both would be \.cls"):
            _members(columns={"data": b"1"}, main="data", filename="1.cls", label=1)

    def test_a_value_without_a_form_is_named(self) -> None:
        with pytest.raises(DatasetError, match=r"column 'x' must have a form in a tar, got \{1\}"):
            _members(columns={"x": {1}})
        with pytest.raises(DatasetError, match="column 'x' must have a form in a tar"):
            _members(columns={"x": np.array([{}], object)})

    def test_an_item_without_columns_is_refused(self) -> None:
        with pytest.raises(DatasetError, match="has no members"):
            _members(key="a")


class TestExamples:
    def test_what_a_converted_picture_had_is_there_again(self) -> None:
        picture = encoded_picture("JPEG")
        made = example_record(
            Sample(picture=picture, label=5, class_name="dog", filename="7.jpg", columns={"txt": b"t", "n": 3})
        )
        (record,) = made.parts
        sample = TarRecords(numbered=False)
        members = _of_record(sample.record(Sample(record=record), 12))
        assert members == {
            "000000012.image_filename.txt": b"7.jpg",
            "000000012.image_class_text.txt": b"dog",
            "000000012.jpg": picture,
            "000000012.cls": b"5",
            "000000012.n.json": b"3",
            "000000012.txt": b"t",
        }

    def test_a_record_that_came_from_a_tar_has_its_members_again(self) -> None:
        features = {
            "__key__": b"a/7",
            "image/filename": b"7.png",
            "image/encoded": encoded_picture("PNG"),
            "json": b"{}",
        }
        members = _in_tar(Sample(record=encode_example(features)))
        assert members == {"a/7.png": features["image/encoded"], "a/7.json": b"{}"}

    def test_an_array_in_three_features_is_an_array(self) -> None:
        array = np.arange(6, dtype=">f4").reshape(3, 2)
        for value in (array, np.array(7)):
            (record,) = example_record(Sample(columns={"array": value, "b": value.T}, whole_arrays=True)).parts
            members = _in_tar(Sample(record=record))
            assert np.array_equal(_npy(members["000000000.npy"]), value)
            assert np.array_equal(_npy(members["000000000.b.npy"]), value.T)
        features = {"b/data": b"123", "b/dtype": b"<f4"}
        members = _in_tar(Sample(record=encode_example(features)))
        assert members == {"000000000.b_data.bin": b"123", "000000000.b_dtype.bin": b"<f4"}

    def test_a_file_keeps_its_path(self) -> None:
        (record,) = example_record(Sample(columns={"data": b"x"}, features={"path": b"a/b.mp3"})).parts
        assert _in_tar(Sample(record=record)) == {"a/b.mp3": b"x"}

    @pytest.mark.parametrize("record", [b"", b"no Example", bytes(100)])
    def test_a_record_that_is_no_example_is_bytes(self, record: bytes) -> None:
        assert _of_record(TarRecords(numbered=False).record(Sample(record=record), 3)) == {"000000003.bin": record}

    def test_several_values_are_lists_or_members_of_their_own(self) -> None:
        record = encode_example({"n": [1, 2], "f": [0.5], "tags": [b"a", b"b"]})
        members = _in_tar(Sample(record=record))
        assert members == {
            "000000000.n.json": b"[1, 2]",
            "000000000.f.json": b"0.5",
            "000000000.tags.0.bin": b"a",
            "000000000.tags.1.bin": b"b",
        }

    def test_a_record_with_a_key_only_has_no_members(self) -> None:
        with pytest.raises(DatasetError, match="has no members"):
            _in_tar(Sample(record=encode_example({"__key__": b"a"})))


def _of_record(record: Record) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(bytes(part) for part in record.parts))) as archive:
        found: dict[str, bytes] = {}
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            found[member.name] = file.read()
        return found


def _in_tar(sample: Sample) -> dict[str, bytes]:
    return _of_record(TarRecords(numbered=False).record(sample, 0))


class TestKeys:
    @pytest.mark.parametrize(
        ("path", "key"),
        [
            ("a/b.jpg", "a/b"),
            ("a.b/c.d.jpg", "a.b/c_d"),
            ("x", "x"),
            (".x", "_x"),
            ("x.", "x"),
            ("/root/../a/./b.x", "root/a/b"),
            ("__MACOSX__/a.jpg", "_MACOSX__/a"),
            ("______/a", "___/a"),
            ("a/__b__.jpg", "a/__b__"),
            ("ä b\udcff.jpg", "ä b\udcff"),
            ("", ""),
        ],
    )
    def test_a_path_gives_a_key_that_readers_find(self, path: str, key: str, tmp_path: Path) -> None:
        assert key_of_path(path) == key
        (row,) = _read(tmp_path, Sample(columns={"data": b"1"}, main="data", path=path))
        assert row == {"__key__": key or "000000000", "bin": b"1"}

    @given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), max_size=5), max_size=4))
    def test_any_path_gives_a_key_that_readers_find(self, parts: list[str]) -> None:
        sample = Sample(columns={"data": b"1"}, main="data", path="/".join(parts))
        (name,) = _of_record(TarRecords(numbered=False).record(sample, 5))
        assert name.endswith(".bin")

    def test_the_key_of_a_tar_is_kept_even_if_it_is_odd(self, tmp_path: Path) -> None:
        keys = ["./a", "n" * 150, "d" * 90 + "/" + "e" * 60, "ö/ß", "bad\udcff"]
        samples = [Sample(key=key, members={"seg.png": b"1", "cls": b"x"}) for key in keys]
        assert [row["__key__"] for row in _read(tmp_path, *samples)] == keys

    @pytest.mark.parametrize("key", ["/rooted/b", "../b", "a/../../b"])
    def test_a_key_that_leaves_the_folder_it_is_unpacked_in_is_refused(self, key: str) -> None:
        with pytest.raises(DatasetError, match=r"must have members that stay below the folder.*--keys numbers"):
            _in_tar(Sample(key=key, members={"x": b""}))

    def test_numbers_take_the_place_of_all_names(self) -> None:
        records = TarRecords(numbered=True)
        for place in (7, 8):
            assert list(_of_record(records.record(Sample(key="a", members={"x": b""}), place))) == [f"{place:09d}.x"]

    def test_two_samples_of_one_key_in_a_shard_are_named(self) -> None:
        records = TarRecords(numbered=False)
        records.record(Sample(columns={"data": b""}, main="data", path="a/b.c.jpg"), 3)
        with pytest.raises(DatasetError, match=r"item 3 has 'a/b_c', too.*--keys numbers"):
            records.record(Sample(columns={"data": b""}, main="data", path="a/b_c.png"), 4)
        TarRecords(numbered=False).record(Sample(key="a/b_c", members={"x": b""}), 5)

    @pytest.mark.parametrize("key", ["n" * 252, "d" * 256 + "/a", "d/" * 2047 + "a"])
    def test_names_that_are_too_long_are_refused(self, key: str) -> None:
        with pytest.raises(DatasetError, match=r"at most 255 bytes .* and 4095 together.*--keys numbers"):
            _in_tar(Sample(key=key, members={"jpg": b""}))
        _in_tar(Sample(key=key[:251], members={"jpg": b""}))

    def test_a_column_whose_name_is_too_long_is_refused(self) -> None:
        with pytest.raises(DatasetError, match="rename the column"):
            _in_tar(Sample(columns={"c" * 250: 1}))

    @pytest.mark.parametrize("key", ["a.b", "__meta__/a", "a/", "a\n"])
    def test_a_key_that_readers_would_not_find_is_refused(self, key: str) -> None:
        with pytest.raises(DatasetError, match="that readers of WebDataset take apart"):
            _in_tar(Sample(key=key, members={"x": b""}))


class TestFile:
    def test_headers_are_the_same_on_every_machine(self, tmp_path: Path) -> None:
        samples = [Sample(key=key, members={"a": b"1" * 513, "b": b""}) for key in ("x", "ö" * 90)]
        first, second = _tar(tmp_path, *samples), _tar(tmp_path, *samples)
        assert first == second
        assert len(first) % tarfile.RECORDSIZE == 0
        with tarfile.open(fileobj=io.BytesIO(first)) as archive:
            for member in archive:
                assert (member.mtime, member.uid, member.gid, member.mode) == (0, 0, 0, 0o644)
                assert (member.uname, member.gname, member.type) == ("", "", tarfile.REGTYPE)

    def test_other_bytes_on_the_disk_than_were_written_are_found(self, tmp_path: Path) -> None:
        with ShardFile(tmp_path / "a.tar", 1) as file:
            shard = TarShard(file)
            data = bytearray(b"1" * 512)
            shard.append(Record(parts=(data,)))
            data[7] = 0  # as if the memory of this machine were faulty
            with pytest.raises(DatasetError, match=r"must read back with .* may be faulty"):
                shard.commit(verify=True, advance=lambda _: None)
        assert list(tmp_path.iterdir()) == []
