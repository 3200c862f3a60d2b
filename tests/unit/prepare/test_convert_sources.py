import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.prepare.sources.choice import guess_kind, open_source
from emlio.prepare.sources.class_names import ClassNames
from emlio.prepare.sources.manifest import Manifest
from emlio.reading.group_engine import GroupMaker
from emlio_testing.datasets import write_tfrecord
from emlio_testing.format_datasets import FORMS
from emlio_testing.format_files import tar_of
from emlio_testing.pictures import encoded_picture
from emlio_testing.sources import features_of


class TestManifest:
    def test_columns_of_a_csv_becomefeatures_of(self, tmp_path: Path) -> None:
        (tmp_path / "im").mkdir()
        (tmp_path / "im" / "a.jpg").write_bytes(encoded_picture(colour=(1,) * 3))
        (tmp_path / "b.bin").write_bytes(b"data")
        table = tmp_path / "list.csv"
        table.write_text("file,label,age,weight,who\nim/a.jpg,4,30,1.5,Ann\nb.bin,2,-7,2,Bob\n")
        source = Manifest(table)
        first, second = features_of(source, 0), features_of(source, 1)
        assert first["image/class/label"] == [4]
        assert first["image/filename"] == [b"a.jpg"]
        assert first["age"] == [30]
        assert first["weight"] == [1.5]
        assert first["who"] == [b"Ann"]
        assert second["data"] == [b"data"]
        assert second["filename"] == [b"b.bin"]
        assert second["age"] == [-7]
        assert second["weight"] == [2.0]
        assert isinstance(second["weight"][0], float)  # type: ignore[index]

    @pytest.mark.parametrize("cells", [("1_2", "12"), ("1_0.5", "2")])
    def test_text_with_digits_stays_text(self, tmp_path: Path, cells: tuple[str, str]) -> None:
        (tmp_path / "x").write_bytes(b"1")
        table = tmp_path / "list.csv"
        table.write_text("file,who\n" + "".join(f"x,{cell}\n" for cell in cells))
        source = Manifest(table)
        assert [features_of(source, place)["who"] for place in range(2)] == [[cell.encode()] for cell in cells]

    def test_class_names_are_numbered_by_their_order(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"1")
        table = tmp_path / "list.csv"
        table.write_text("label,file\nwolf,x\ndog,x\nwolf,x\n")
        source = Manifest(table)
        assert [source.record(place).label for place in range(3)] == [1, 0, 1]
        assert source.listing.label_names == {0: "dog", 1: "wolf"}
        assert features_of(source, 0)["image/class/text"] == [b"wolf"]

    def test_jsonl_keeps_its_types(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"1")
        table = tmp_path / "list.jsonl"
        rows = [
            {"file": "x", "label": 3, "n": 1, "f": 1, "s": "ä", "box": [1, 2, 3]},
            {"file": "x", "label": 0, "n": 2, "f": 0.5, "s": "", "box": []},
        ]
        table.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
        source = Manifest(table)
        assert features_of(source, 0) == {
            "data": [b"1"],
            "filename": [b"x"],
            "image/class/label": [3],
            "n": [1],
            "f": [1.0],
            "s": ["ä".encode()],
            "box": [1, 2, 3],
        }
        assert "box" not in features_of(source, 1)

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            (
                "a.csv",
                "path,label\nx,1\n",
                "must have a column 'file' .*, has 'label', 'path'. Name it with --file-column",
            ),
            (
                "a.csv",
                "flie,label\nx,1\n",
                r"has 'flie', 'label'\. Name it with --file-column; did you mean 'flie'\?$",
            ),
            (
                "a.jsonl",
                '{"text": "x"}',
                "Name it with --file-column, or convert the lines themselves: --tokenizer .* --from jsonl makes records$",
            ),
            ("a.csv", "file,label\nx\n", "line 2: must have 2 cells, has 1"),
            ("a.csv", "file,file\nx,x\n", "a name of its own"),
            (
                "a.csv",
                "file\nx\n\ngone.jpg\n",
                r"a\.csv: line 4: .*/gone\.jpg: cannot be listed: No such file or directory$",
            ),
            ("a.csv", 'file,text\nx,"two\nlines"\ngone.jpg,one\n', r"line 4: .*/gone\.jpg"),
            ("a.csv", "file,text\nx,one\n,two\n", r"line 3: 'file' must be a path, got ''$"),
            ("a.csv", "file,image/encoded\nx,1\n", "must not be named"),
            ("a.csv", "", "must have a column 'file' .*, has none"),
            ("a.jsonl", '{"file": "x"}\n{"file": ', "line 2"),
            (
                "a.jsonl",
                '{"file": "x"}\n{"file": "x", "b": 1}',
                r"line 2.*\['b'\]\. Give them all keys, or convert .* --from jsonl",
            ),
            ("a.jsonl", '{"file": "x", "b": {"c": 1}}', "line 1"),
            ("a.jsonl", '{"file": 3}', "line 1: 'file' must be a path, got 3$"),
            ("a.jsonl", '{"file": "x"}\n\n{"file": "gone"}', r"line 3: .*/gone: cannot be listed"),
        ],
    )
    def test_broken_tables_are_refused_with_their_place(
        self, tmp_path: Path, name: str, content: str, message: str
    ) -> None:
        (tmp_path / "x").write_bytes(b"1")
        (tmp_path / name).write_text(content)
        with pytest.raises(DatasetError, match=message):
            Manifest(tmp_path / name)


class TestGuess:
    def test_every_form_is_recognised(self, tmp_path: Path) -> None:
        images = tmp_path / "images"
        (images / "class" / "deeper").mkdir(parents=True)
        (images / "class" / "deeper" / "a.jpg").write_bytes(encoded_picture(colour=(1,) * 3))
        arrays, nested, tars, records, parts = (
            tmp_path / name for name in ("arrays", "nested", "tars", "records", "parts")
        )
        for folder in (arrays, nested / "class", tars, records, parts / "train"):
            folder.mkdir(parents=True)
        np.save(arrays / "a.npy", np.zeros(1))
        np.save(nested / "class" / "a.npy", np.zeros(1))
        for place in (tars, parts / "train"):
            (place / "a.tar").write_bytes(tar_of([("x.txt", b"")]))
        write_tfrecord(records / "train-00000-of-00001", [b"1"])
        table = tmp_path / "list.jsonl"
        table.write_text("")
        assert [guess_kind(path) for path in (images, arrays, nested)] == ["image-folder", "npy", "npy"]
        assert {guess_kind(path) for path in (tars, tars / "a.tar", parts)} == {"webdataset"}
        assert [guess_kind(path) for path in (records, table)] == ["tfrecord", "manifest"]

    def test_compressed_records_are_recognised(self, tmp_path: Path) -> None:
        write_tfrecord(tmp_path / "plain", [b"1"])
        packed = tmp_path / "a.tfrecord.gz"
        packed.write_bytes(gzip.compress((tmp_path / "plain").read_bytes()))
        assert guess_kind(packed) == "tfrecord"

    def test_a_bin_file_and_a_folder_of_them_may_be_tokens(self, tmp_path: Path) -> None:
        (tmp_path / "a.bin").write_bytes(bytes(100))
        for path in (tmp_path, tmp_path / "a.bin"):
            with pytest.raises(DatasetError, match=r"unknown format.*--from tokens --dtype uint16"):
                guess_kind(path)

    def test_nothing_known_says_what_was_looked_for(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("hello, this is no dataset")
        for path in (tmp_path, tmp_path / "notes.txt"):
            with pytest.raises(DatasetError, match=r"unknown format, .* --from"):
                guess_kind(path)

    @pytest.mark.parametrize(
        ("kind", "message"),
        [
            ("image-folder", "holds no folder"),
            ("npy", r"must hold \.npy"),
            ("webdataset", r"must hold \.tar files"),
            ("tfrecord", "must hold TFRecord files"),
            ("manifest", "must be a file"),
        ],
    )
    def test_the_wrong_directory_is_refused_with_what_is_missing(self, tmp_path: Path, kind: str, message: str) -> None:
        with pytest.raises(DatasetError, match=message):
            open_source(tmp_path, kind, None, tmp_path / "unpacked")

    def test_labels_for_records_that_are_copied_are_refused(self, tmp_path: Path) -> None:
        labels = tmp_path / "labels.txt"
        labels.write_text("a\n")
        with pytest.raises(ConfigError, match="labels cannot be used with TFRecord files"):
            open_source(tmp_path, "tfrecord", labels, tmp_path / "unpacked")

    @pytest.mark.parametrize("content", ["", "a\na\n", "a\n\nb\n"])
    def test_broken_lists_of_classes_are_refused(self, tmp_path: Path, content: str) -> None:
        labels = tmp_path / "labels.txt"
        labels.write_text(content)
        with pytest.raises(ConfigError, match=r"labels\.txt"):
            ClassNames.read(labels)


def test_a_table_rewritten_while_it_is_unpacked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FORMS["parquet"].make(tmp_path / "rows", 40)
    make = GroupMaker.make

    def rewritten(*arguments: Any) -> Any:
        made = make(*arguments)
        os.utime(tmp_path / "rows" / "part-0.parquet", ns=(1, 1))
        return made

    monkeypatch.setattr(GroupMaker, "make", rewritten)
    rows = open_source(tmp_path / "rows", "parquet", None, tmp_path / "scratch", None)
    try:
        with pytest.raises(DatasetError, match=r"part-0\.parquet: changed during the conversion"):
            rows.record(0)
    finally:
        rows.close()
