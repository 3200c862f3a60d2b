import gzip
import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from emlio.errors import ConfigError, DatasetError
from emlio.example import parse_example
from emlio.prepare.sources.choice import guess_kind, open_source
from emlio.prepare.sources.class_names import ClassNames
from emlio.prepare.sources.image_folder import ImageFolder
from emlio.prepare.sources.manifest import Manifest
from emlio.prepare.sources.npy_folder import NpyFolder
from emlio.prepare.sources.record_source import RecordSource
from emlio.prepare.sources.webdataset import WebDataset
from emlio_testing.datasets import write_tfrecord


def _jpeg(shade: int, size: tuple[int, int] = (12, 8)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (shade, shade, shade)).save(buffer, "JPEG")
    return buffer.getvalue()


def _features(source: RecordSource, place: int) -> dict[str, object]:
    record = b"".join(source.record(place).parts)
    return {
        name: [bytes(value) if isinstance(value, memoryview) else value for value in values]
        for name, values in parse_example(record).items()
    }


def _image_folder(root: Path, classes: tuple[str, ...] = ("n01440764", "zebra")) -> Path:
    for number, name in enumerate(classes):
        (root / name / "deeper").mkdir(parents=True)
        (root / name / "b.JPEG").write_bytes(_jpeg(10 * number))
        (root / name / "deeper" / "a.jpg").write_bytes(_jpeg(10 * number + 5))
    return root


def _tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


class TestImageFolder:
    def test_features_have_the_names_and_values_of_imagenets_tfrecords(self, tmp_path: Path) -> None:
        root = _image_folder(tmp_path / "images")
        source = ImageFolder(root)
        assert _features(source, 0) == {
            "image/channels": [3],
            "image/class/label": [0],
            "image/class/synset": [b"n01440764"],
            "image/class/text": [b"n01440764"],
            "image/colorspace": [b"RGB"],
            "image/encoded": [(root / "n01440764" / "b.JPEG").read_bytes()],
            "image/filename": [b"b.JPEG"],
            "image/format": [b"JPEG"],
            "image/height": [8],
            "image/width": [12],
        }
        assert "image/class/synset" not in _features(source, 3)
        assert [source.record(place).label for place in range(4)] == [0, 0, 1, 1]
        assert source.listing.label_names == {0: "n01440764", 1: "zebra"}

    def test_a_list_of_classes_gives_numbers_and_names(self, tmp_path: Path) -> None:
        labels = tmp_path / "labels.txt"
        labels.write_text("zebra\nn00000001 other\nn01440764 tench, Tinca tinca\nhorse\tHorse\n\n")
        source = ImageFolder(_image_folder(tmp_path / "images"), ClassNames.read(labels))
        assert _features(source, 0)["image/class/label"] == [2]
        assert _features(source, 0)["image/class/text"] == [b"tench, Tinca tinca"]
        assert _features(source, 3)["image/class/label"] == [0]
        assert source.listing.label_names[3] == "Horse"

    def test_a_class_that_is_not_listed_is_named(self, tmp_path: Path) -> None:
        labels = tmp_path / "labels.txt"
        labels.write_text("zebra\n")
        with pytest.raises(DatasetError, match=r"n01440764.*must be one of the 1 classes in .*labels\.txt"):
            ImageFolder(_image_folder(tmp_path / "images"), ClassNames.read(labels))

    def test_files_that_are_no_images_are_passed_over_and_counted(self, tmp_path: Path) -> None:
        root = _image_folder(tmp_path)
        (root / "zebra" / "Thumbs.db").write_bytes(b"x")
        (root / ".hidden").mkdir()
        assert ImageFolder(root).listing.ignored == 1
        assert len(ImageFolder(root).listing.sizes_bytes) == 4

    def test_a_class_without_images_is_refused_because_it_would_shift_the_labels(self, tmp_path: Path) -> None:
        root = _image_folder(tmp_path)
        (root / "__MACOSX").mkdir()
        with pytest.raises(DatasetError, match=r"__MACOSX.*holds none"):
            ImageFolder(root)

    def test_an_image_that_changed_since_it_was_listed_is_named(self, tmp_path: Path) -> None:
        root = _image_folder(tmp_path)
        source = ImageFolder(root)
        (root / "zebra" / "b.JPEG").write_bytes(_jpeg(1, (40, 40)))
        with pytest.raises(DatasetError, match=r"zebra/b\.JPEG: changed during the conversion"):
            source.record(2)

    def test_an_image_written_again_with_the_same_size_counts_as_changed(self, tmp_path: Path) -> None:
        root = _image_folder(tmp_path)
        source = ImageFolder(root)
        os.utime(root / "zebra" / "b.JPEG", ns=(1, 1))
        with pytest.raises(DatasetError, match="changed"):
            source.record(2)
        assert ImageFolder(root).listing.fingerprint != source.listing.fingerprint

    def test_an_image_that_is_gone_is_named(self, tmp_path: Path) -> None:
        root = _image_folder(tmp_path)
        source = ImageFolder(root)
        (root / "zebra" / "b.JPEG").unlink()
        with pytest.raises(DatasetError, match=r"zebra/b\.JPEG: cannot be read: No such file"):
            source.record(2)

    def test_a_dangling_link_is_named(self, tmp_path: Path) -> None:
        root = _image_folder(tmp_path)
        (root / "zebra" / "link.jpg").symlink_to(tmp_path / "nowhere")
        with pytest.raises(DatasetError, match=r"link\.jpg: cannot be listed"):
            ImageFolder(root)


class TestWebDataset:
    def test_members_of_one_name_become_one_record(self, tmp_path: Path) -> None:
        image = _jpeg(3)
        tar = _tar(
            tmp_path / "a.tar",
            {
                "d/000.jpg": image,
                "d/000.cls": b"7\n",
                "d/000.json": b'{"a": 1}',
                "d/000.seg.png": b"mask",
                "d/001.txt": b"text",
            },
        )
        source = WebDataset(tar)
        first = _features(source, 0)
        assert first["image/encoded"] == [image]
        assert first["image/class/label"] == [7]
        assert first["image/width"] == [12]
        assert first["json"] == [b'{"a": 1}']
        assert first["seg.png"] == [b"mask"]
        assert first["__key__"] == [b"d/000"]
        assert source.record(0).label == 7
        assert _features(source, 1) == {"__key__": [b"d/001"], "txt": [b"text"]}

    def test_tars_of_a_folder_follow_each_other_by_name(self, tmp_path: Path) -> None:
        _tar(tmp_path / "b.tar", {"x.txt": b"2"})
        _tar(tmp_path / "a.tar", {"x.txt": b"1"})
        source = WebDataset(tmp_path)
        assert [_features(source, place)["txt"] for place in range(2)] == [[b"1"], [b"2"]]
        assert source.key(1) == f"{tmp_path / 'b.tar'}: x"

    def test_long_names_and_folders_are_read(self, tmp_path: Path) -> None:
        name = "long/" + "n" * 150
        source = WebDataset(_tar(tmp_path / "a.tar", {f"{name}.txt": b"1"}))
        assert _features(source, 0)["__key__"] == [name.encode()]

    def test_an_extension_twice_in_a_sample_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetError, match="is repeated"):
            WebDataset(_tar(tmp_path / "a.tar", {"x.txt": b"1", "x.TXT": b"2"}))

    def test_a_label_that_is_no_number_is_named(self, tmp_path: Path) -> None:
        source = WebDataset(_tar(tmp_path / "a.tar", {"x.cls": b"dog"}))
        with pytest.raises(DatasetError, match="whole number, got b'dog'"):
            source.record(0)

    def test_a_broken_header_in_the_middle_is_found(self, tmp_path: Path) -> None:
        tar = _tar(tmp_path / "a.tar", {f"{number}.txt": b"x" * 600 for number in range(5)})
        content = bytearray(tar.read_bytes())
        content[3 * 1536 + 100 : 3 * 1536 + 200] = b"\xff" * 100
        tar.write_bytes(content)
        with pytest.raises(DatasetError, match="byte 4608"):
            WebDataset(tar)

    def test_a_tar_cut_inside_a_member_is_refused(self, tmp_path: Path) -> None:
        tar = _tar(tmp_path / "a.tar", {f"{number}.txt": b"x" * 600 for number in range(5)})
        tar.write_bytes(tar.read_bytes()[: 4 * 1536 + 700])
        with pytest.raises(DatasetError):
            WebDataset(tar).record(4)

    def test_a_compressed_tar_is_refused(self, tmp_path: Path) -> None:
        tar = _tar(tmp_path / "a.tar", {"x.txt": b"1"})
        tar.write_bytes(gzip.compress(tar.read_bytes()))
        with pytest.raises(DatasetError, match="uncompressed tar file"):
            WebDataset(tar)


class TestManifest:
    def test_columns_of_a_csv_become_features(self, tmp_path: Path) -> None:
        (tmp_path / "im").mkdir()
        (tmp_path / "im" / "a.jpg").write_bytes(_jpeg(1))
        (tmp_path / "b.bin").write_bytes(b"data")
        table = tmp_path / "list.csv"
        table.write_text("file,label,age,weight,who\nim/a.jpg,4,30,1.5,Ann\nb.bin,2,-7,2,Bob\n")
        source = Manifest(table)
        first, second = _features(source, 0), _features(source, 1)
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

    def test_class_names_are_numbered_by_their_order(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"1")
        table = tmp_path / "list.csv"
        table.write_text("label,file\nwolf,x\ndog,x\nwolf,x\n")
        source = Manifest(table)
        assert [source.record(place).label for place in range(3)] == [1, 0, 1]
        assert source.listing.label_names == {0: "dog", 1: "wolf"}
        assert _features(source, 0)["image/class/text"] == [b"wolf"]

    def test_jsonl_keeps_its_types(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"1")
        table = tmp_path / "list.jsonl"
        rows = [
            {"file": "x", "label": 3, "n": 1, "f": 1, "s": "ä", "box": [1, 2, 3]},
            {"file": "x", "label": 0, "n": 2, "f": 0.5, "s": "", "box": []},
        ]
        table.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
        source = Manifest(table)
        assert _features(source, 0) == {
            "data": [b"1"],
            "filename": [b"x"],
            "image/class/label": [3],
            "n": [1],
            "f": [1.0],
            "s": ["ä".encode()],
            "box": [1, 2, 3],
        }
        assert "box" not in _features(source, 1)

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("a.csv", "path,label\nx,1\n", "must have a column 'file', has label, path"),
            ("a.csv", "file,label\nx\n", "line 2: must have 2 cells, has 1"),
            ("a.csv", "file,file\nx,x\n", "a name of its own"),
            ("a.csv", "file\n''\nmissing\n", "cannot be listed"),
            ("a.csv", "file,image/encoded\nx,1\n", "must not be named"),
            ("a.csv", "", "must have a column 'file', has none"),
            ("a.jsonl", '{"file": "x"}\n{"file": ', "line 2"),
            ("a.jsonl", '{"file": "x"}\n{"file": "x", "b": 1}', r"line 2.*\['b'\]"),
            ("a.jsonl", '{"file": "x", "b": {"c": 1}}', "line 1"),
            ("a.jsonl", '{"file": 3}', "entry 1"),
        ],
    )
    def test_broken_tables_are_refused_with_their_place(
        self, tmp_path: Path, name: str, content: str, message: str
    ) -> None:
        (tmp_path / "x").write_bytes(b"1")
        (tmp_path / name).write_text(content)
        with pytest.raises(DatasetError, match=message):
            Manifest(tmp_path / name)


class TestNpyFolder:
    def test_arrays_become_bytes_shape_and_type(self, tmp_path: Path) -> None:
        array = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
        np.save(tmp_path / "a.npy", array)
        np.save(tmp_path / "b.npy", np.int16(7))
        source = NpyFolder(tmp_path)
        first = _features(source, 0)
        assert first["array/shape"] == [2, 3]
        assert first["array/dtype"] == [b"<f4"]
        back = np.frombuffer(first["array/data"][0], dtype="<f4").reshape(2, 3)  # type: ignore[index]
        assert (back == array).all()
        assert "array/shape" not in _features(source, 1)

    def test_folders_are_classes(self, tmp_path: Path) -> None:
        for name in ("b", "a"):
            (tmp_path / name).mkdir()
            np.save(tmp_path / name / "x.npy", np.zeros(2))
        source = NpyFolder(tmp_path)
        assert [source.record(place).label for place in range(2)] == [0, 1]
        assert _features(source, 1)["image/class/text"] == [b"b"]

    def test_arrays_of_objects_are_never_unpickled(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.array([{"x": 1}], dtype=object), allow_pickle=True)
        with pytest.raises(DatasetError, match="array of numbers"):
            NpyFolder(tmp_path).record(0)

    def test_a_broken_array_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00")
        with pytest.raises(DatasetError, match="array of numbers"):
            NpyFolder(tmp_path).record(0)


class TestGuess:
    def test_every_form_is_recognised(self, tmp_path: Path) -> None:
        images = _image_folder(tmp_path / "images")
        arrays, nested, tars, records = (tmp_path / name for name in ("arrays", "nested", "tars", "records"))
        for folder in (arrays, nested / "class", tars, records):
            folder.mkdir(parents=True)
        np.save(arrays / "a.npy", np.zeros(1))
        np.save(nested / "class" / "a.npy", np.zeros(1))
        _tar(tars / "a.tar", {"x.txt": b""})
        write_tfrecord(records / "train-00000-of-00001", [b"1"])
        table = tmp_path / "list.jsonl"
        table.write_text("")
        guessed = [guess_kind(path) for path in (images, arrays, nested, tars, tars / "a.tar", records, table)]
        assert guessed == ["image-folder", "npy", "npy", "webdataset", "webdataset", "tfrecord", "manifest"]

    def test_compressed_records_are_recognised(self, tmp_path: Path) -> None:
        write_tfrecord(tmp_path / "plain", [b"1"])
        packed = tmp_path / "a.tfrecord.gz"
        packed.write_bytes(gzip.compress((tmp_path / "plain").read_bytes()))
        assert guess_kind(packed) == "tfrecord"

    def test_nothing_known_says_what_was_looked_for(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("hello, this is no dataset")
        for path in (tmp_path, tmp_path / "notes.txt"):
            with pytest.raises(DatasetError, match=r"unknown format, .* --from"):
                guess_kind(path)

    @pytest.mark.parametrize(
        ("kind", "message"),
        [
            ("image-folder", "holds no folder"),
            ("npy", r"must hold \.npy files"),
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
