"""Sources of a conversion that are read by the formats: image folders, tars, arrays and others."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.example import parse_example
from emlio.prepare.sources.choice import guess_kind, open_source
from emlio.prepare.sources.record_source import Ignored, RecordSource
from emlio.prepare.targets.example_form import example_record
from emlio_testing.format_files import put_mds, tar_of
from emlio_testing.pictures import encoded_picture
from emlio_testing.sources import features_of

Open = Callable[..., RecordSource]

_arrow_library: Any = import_module("pyarrow")  # which has no types
_parquet: Any = import_module("pyarrow.parquet")


@pytest.fixture
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Opens sources, and closes them in the end, when they must have removed what they had unpacked."""
    scratches: list[Path] = []
    with ExitStack() as stack:

        def opened(
            path: Path, kind: str, labels: Path | None = None, options: Mapping[str, str] | None = None
        ) -> RecordSource:
            scratch = tmp_path_factory.mktemp("scratch") / "unpacked"
            made = open_source(path, kind, labels, scratch, options)
            stack.callback(made.close)
            scratches.append(scratch)
            return made

        yield opened
    assert not [scratch for scratch in scratches if scratch.exists()]


def _image_folder(root: Path, classes: tuple[str, ...] = ("n01440764", "zebra")) -> Path:
    for number, name in enumerate(classes):
        (root / name / "deeper").mkdir(parents=True)
        (root / name / "b.JPEG").write_bytes(encoded_picture(colour=(10 * number,) * 3))
        (root / name / "deeper" / "a.jpg").write_bytes(encoded_picture(colour=(10 * number + 5,) * 3))
    return root


def _tar(path: Path, members: dict[str, bytes]) -> Path:
    path.write_bytes(tar_of(members.items()))
    return path


class TestImageFolder:
    def test_features_have_the_names_and_values_of_imagenets_tfrecords(self, tmp_path: Path, source: Open) -> None:
        root = _image_folder(tmp_path / "images")
        images = source(root, "image-folder")
        assert features_of(images, 0) == {
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
        assert "image/class/synset" not in features_of(images, 3)
        assert [images.record(place).label for place in range(4)] == [0, 0, 1, 1]
        assert images.listing.label_names == {0: "n01440764", 1: "zebra"}

    def test_a_list_of_classes_gives_numbers_and_names(self, tmp_path: Path, source: Open) -> None:
        labels = tmp_path / "labels.txt"
        labels.write_text("zebra\nn00000001 other\nn01440764 tench, Tinca tinca\nhorse\tHorse\n\n")
        root = _image_folder(tmp_path / "images")
        for kind in ("image-folder", "files"):
            images = source(root, kind, labels)
            assert features_of(images, 0)["image/class/label"] == [2]
            assert features_of(images, 0)["image/class/text"] == [b"tench, Tinca tinca"]
            assert features_of(images, 3)["image/class/label"] == [0]
            assert images.listing.label_names[3] == "Horse"

    def test_a_class_that_is_not_listed_is_named(self, tmp_path: Path, source: Open) -> None:
        labels = tmp_path / "labels.txt"
        labels.write_text("zebra\n")
        with pytest.raises(DatasetError, match=r"n01440764.*must be one of the 1 classes in .*labels\.txt"):
            source(_image_folder(tmp_path / "images"), "image-folder", labels)

    @pytest.mark.parametrize("name", ["empty", "empty/x.txt"])
    def test_a_class_without_images_is_refused_because_it_would_shift_the_labels(
        self, tmp_path: Path, source: Open, name: str
    ) -> None:
        root = _image_folder(tmp_path)
        if "/" in name:
            (root / name).parent.mkdir()
            (root / name).write_bytes(b"x")
        else:
            (root / name).mkdir()
        with pytest.raises(DatasetError, match=rf"{name.partition('/')[0]}.*holds none"):
            source(root, "image-folder")

    def test_an_image_written_again_with_the_same_size_counts_as_changed(self, tmp_path: Path, source: Open) -> None:
        root = _image_folder(tmp_path)
        images = source(root, "image-folder")
        os.utime(root / "zebra" / "b.JPEG", ns=(1, 1))
        with pytest.raises(DatasetError, match="changed"):
            images.record(2)
        assert source(root, "image-folder").listing.fingerprint != images.listing.fingerprint

    def test_a_folder_name_that_is_no_utf8_is_a_class(self, tmp_path: Path, source: Open) -> None:
        root = _image_folder(tmp_path, ("a\udcff", "b"))
        assert features_of(source(root, "image-folder"), 0)["image/class/text"] == [b"a\\xff"]

    def test_files_that_are_no_images_are_passed_over_and_counted(self, tmp_path: Path, source: Open) -> None:
        root = _image_folder(tmp_path)
        (root / "zebra" / "Thumbs.db").write_bytes(b"x")
        (root / "model.py").write_bytes(b"not in a class: it changes no label")
        (root / ".hidden").mkdir()
        images = source(root, "image-folder")
        assert images.listing.ignored == Ignored(count=2, names=("model.py", "zebra/Thumbs.db"))
        assert [images.record(place).label for place in range(len(images.listing.sizes_bytes))] == [0, 0, 1, 1]


class TestWebDataset:
    def test_members_of_one_name_become_one_record(self, tmp_path: Path, source: Open) -> None:
        image = encoded_picture(colour=(3,) * 3)
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
        for kind in ("webdataset", "tar"):
            samples = source(tar, kind)
            first = features_of(samples, 0)
            assert first["image/encoded"] == [image]
            assert first["image/filename"] == [b"000.jpg"]
            assert first["image/class/label"] == [7]
            assert first["image/width"] == [12]
            assert first["json"] == [b'{"a": 1}']
            assert first["seg.png"] == [b"mask"]
            assert first["__key__"] == [b"d/000"]
            assert samples.record(0).label == 7
            assert features_of(samples, 1) == {"__key__": [b"d/001"], "txt": [b"text"]}

    def test_tars_may_be_links_as_in_caches_of_downloads(self, tmp_path: Path, source: Open) -> None:
        (tmp_path / "snapshot").mkdir()
        (tmp_path / "blobs").mkdir()
        _tar(tmp_path / "blobs" / "0123", {"x.txt": b"1"})
        (tmp_path / "snapshot" / "a.tar").symlink_to("../blobs/0123")
        for path in (tmp_path / "snapshot", tmp_path / "snapshot" / "a.tar"):
            assert features_of(source(path, "webdataset"), 0)["txt"] == [b"1"]


class TestArrays:
    def test_arrays_become_bytes_shape_and_type(self, tmp_path: Path, source: Open) -> None:
        array = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
        np.save(tmp_path / "a.npy", array)
        np.save(tmp_path / "b.npy", np.int16(7))
        np.save(tmp_path / "c.npy", np.arange(4))
        arrays = source(tmp_path, "npy")
        first = features_of(arrays, 0)
        assert first["array/shape"] == [2, 3]
        assert first["array/dtype"] == [b"<f4"]
        assert first["array/filename"] == [b"a.npy"]
        back = np.frombuffer(first["array/data"][0], dtype="<f4").reshape(2, 3)  # type: ignore[index]
        assert (back == array).all()
        assert sorted(features_of(arrays, 1)) == ["array/data", "array/dtype", "array/filename"]
        assert features_of(arrays, 2)["array/data"] == [np.arange(4).tobytes()]

    def test_arrays_beside_folders_of_arrays_are_refused(self, tmp_path: Path, source: Open) -> None:
        (tmp_path / "a").mkdir()
        np.save(tmp_path / "a" / "x.npy", np.zeros(2))
        np.save(tmp_path / "y.npy", np.zeros(2))
        with pytest.raises(DatasetError, match=r"not both: y\.npy is beside a/"):
            source(tmp_path, "npy")

    def test_an_archives_own_label_and_path_are_not_taken_for_its_folders(self, tmp_path: Path, source: Open) -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            np.savez(tmp_path / name / "x.npz", label=np.array([7, 8]), path=np.int8(3), more=np.ones((2, 2)))
        features = features_of(source(tmp_path, "npz"), 1)
        assert (features["label"], features["path"], features["image/class/label"]) == ([7, 8], [3], [1])
        assert features["more/shape"] == [2, 2]


class TestTables:
    def _write(self, path: Path) -> bytes:
        picture = encoded_picture(colour=(9,) * 3)
        told = {"info": {"features": {"label": {"names": ["ant", "bee"], "_type": "ClassLabel"}}}}
        rows = {
            "image": [{"bytes": picture, "path": f"{number}.jpg"} for number in range(20)],
            "label": [number % 2 for number in range(20)],
            "words": [None if number == 3 else f"w{number}" for number in range(20)],
            "day": [date(2020, 1, 1 + number) for number in range(20)],
        }
        table = _arrow_library.table(rows).replace_schema_metadata({"huggingface": json.dumps(told)})
        _parquet.write_table(table, path, row_group_size=6)
        return picture

    def test_rows_have_pictures_labels_and_their_names(self, tmp_path: Path, source: Open) -> None:
        picture = self._write(tmp_path / "a.parquet")
        for path in (tmp_path, tmp_path / "a.parquet"):
            rows = source(path, guess_kind(path))
            assert rows.listing.label_names == {0: "ant", 1: "bee"}
            features = features_of(rows, 13)
            assert features["image/encoded"] == [picture]
            assert (features["image/class/label"], features["image/class/text"]) == ([1], [b"bee"])
            assert (features["words"], features["day"], features["image.path"]) == (
                [b"w13"],
                [b"2020-01-14"],
                [b"13.jpg"],
            )
            assert "words" not in features_of(rows, 3)
            assert rows.key(13) == f"{tmp_path / 'a.parquet'}: record 13"

    def test_each_group_is_unpacked_once_whatever_the_order(self, tmp_path: Path, source: Open) -> None:
        self._write(tmp_path / "a.parquet")
        rows = source(tmp_path, "parquet")
        for place in (19, 0, 7, 13):
            assert features_of(rows, place)["image.path"] == [f"{place}.jpg".encode()]
        (tmp_path / "a.parquet").unlink()
        for place in (8, 18, 1, 14, 2):
            assert features_of(rows, place)["image.path"] == [f"{place}.jpg".encode()]

    def test_a_table_that_changed_is_named(self, tmp_path: Path, source: Open) -> None:
        self._write(tmp_path / "a.parquet")
        rows = source(tmp_path, "parquet")
        os.utime(tmp_path / "a.parquet", ns=(1, 1))
        with pytest.raises(DatasetError, match=r"a\.parquet: changed during the conversion"):
            rows.record(0)


class TestOtherFormats:
    def test_a_picture_and_a_label_among_the_columns_are_found(self, tmp_path: Path, source: Open) -> None:
        picture = encoded_picture(colour=(7,) * 3)
        put_mds(
            tmp_path,
            {"img": ("jpeg", None), "y": ("int", 8), "words": ("str", None)},
            {"img": picture, "y": (5).to_bytes(8, "little"), "words": "ä".encode()},
        )
        found = source(tmp_path, "mds")
        features = features_of(found, 0)
        assert (features["image/encoded"], features["image/class/label"]) == ([picture], [5])
        assert (features["words"], features["image/filename"]) == (["ä".encode()], [b"image.jpg"])
        assert not {"img", "y"} & features.keys()

    def test_one_file_of_lines_is_a_source(self, tmp_path: Path, source: Open) -> None:
        lines = [{"n": number, "words": ["a", "b"]} for number in range(3)]
        (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
        (tmp_path / "b.jsonl").write_text("{}")
        found = source(tmp_path / "a.jsonl", "jsonl")
        assert [features_of(found, place)["n"] for place in range(3)] == [[0], [1], [2]]
        assert found.key(2) == f"{tmp_path / 'a.jsonl'}: record 2"

    def test_an_unknown_option_is_refused(self, tmp_path: Path, source: Open) -> None:
        (tmp_path / "a.jsonl").write_text("{}")
        with pytest.raises(ConfigError, match=r"takes the options split .*, files .*; got window"):
            source(tmp_path, "jsonl", None, {"window": "3"})


@pytest.mark.parametrize("value", [3.4028235677973366e38, -1e300])
def test_a_float_beyond_32_bits_is_an_error_in_an_example(value: float, tmp_path: Path, source: Open) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"x": 3.4028235e38, "y": Infinity}}\n{{"x": {value!r}}}\n', encoding="utf-8")
    made = source(tmp_path, "jsonl")
    assert parse_example(b"".join(example_record(made.record(0)).parts))["y"] == [np.inf]
    with pytest.raises(
        DatasetError, match=r"column 'x': a float in a TFRecord file has 32 bits and must be below 3.403e\+38"
    ):
        example_record(made.record(1))
