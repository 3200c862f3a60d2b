"""Splits of a dataset and files that the user chooses, in folders and buckets."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from emlio.cli import main as command
from emlio.errors import ConfigError, DatasetError
from emlio.index import opening as choice
from emlio.index.opening import open_dataset
from emlio.store.bucket.address import ObjectAddress
from emlio.tfrecord import frame
from emlio_testing.datasets import write_tfrecord
from emlio_testing.fake_objects import FakeObjects
from emlio_testing.format_files import numbered_lines, numbered_mds, put_files, read_folder, tar_of, write_megatron

_JPEG = b"\xff\xd8\xff\xe0J"


pytestmark = pytest.mark.usefixtures("own_cache")


def _parquet_bytes(*numbers: int) -> bytes:
    file = io.BytesIO()
    parquet.write_table(arrow.table({"n": arrow.array(numbers, arrow.int64())}), file)
    return file.getvalue()


def _arrow_bytes(*numbers: int) -> bytes:
    file = io.BytesIO()
    table = arrow.table({"n": arrow.array(numbers, arrow.int64())})
    with arrow.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def _tar(*numbers: int) -> bytes:
    return tar_of((f"{number:03d}.txt", b"%d" % number) for number in numbers)


def _clients(root: Path) -> Callable[[ObjectAddress], FakeObjects]:
    """Return what makes clients of a bucket with these files below data/."""
    objects = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def client(address: ObjectAddress) -> FakeObjects:
        below = address.prefix.removeprefix("data").lstrip("/")
        begin = f"{below}/" if below else ""
        return FakeObjects({name.removeprefix(begin): data for name, data in objects.items() if name.startswith(begin)})

    return client


def _frames(*records: bytes) -> bytes:
    return b"".join(map(frame, records))


def _mds_files(folder: str, *numbers: int) -> dict[str, bytes]:
    return {f"{folder}/{name}": data for name, data in numbered_mds({"shard.00000.mds": numbers}).items()}


_JSON_LINES = {"my_train_part.jsonl": numbered_lines(1, 2), "my_validation_part.jsonl": numbered_lines(3)}
_CLASSES = {"train/cat/1.dat": b"1", "train/dog/2.dat": b"2", "val/dog/3.dat": b"3", "val/README.txt": b""}
_LAYOUTS: Mapping[str, tuple[Mapping[str, bytes], str, str]] = {
    "dataset_dict": (
        {
            "dataset_dict.json": json.dumps({"splits": ["first", "second"]}).encode(),
            "first/data-00000-of-00001.arrow": _arrow_bytes(1, 2),
            "second/data-00000-of-00001.arrow": _arrow_bytes(3),
            "first/state.json": b"{}",
            "first/cache-0123456789abcdef.arrow": _arrow_bytes(9),
        },
        "first",
        "second",
    ),
    "hub": (
        {
            "README.md": b"x",
            "data/train-00000-of-00001.parquet": _parquet_bytes(1, 2),
            "data/test-0.parquet": _parquet_bytes(3),
        },
        "train",
        "test",
    ),
    "json_lines": (_JSON_LINES, "train", "validation"),
    "tars": ({"imagenet-train-000000.tar": _tar(1, 2), "imagenet-val-000000.tar": _tar(3)}, "train", "val"),
    "tfrecords": (
        {"train-00000-of-00001.tfrecord": _frames(b"1", b"2"), "test-00000-of-00001.tfrecord": _frames(b"3")},
        "train",
        "test",
    ),
    "tfrecords_below": (
        {
            f"{split}/part-00000-of-00001.tfrecord": data
            for split, data in (("train", _frames(b"1", b"2")), ("val", _frames(b"3")))
        },
        "train",
        "val",
    ),
    "streams": (_mds_files("p0", 1, 2) | _mds_files("p1", 3), "p0", "p1"),
    "classes": (_CLASSES, "train", "val"),
}


def _number(row: Mapping[str, Any]) -> int:
    if "n" in row:
        return int(row["n"])
    return int(bytes(row.get("data", row.get("txt", row.get("record")))))


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """A folder with two splits of two records and one."""

    name: str
    root: Path
    first: str
    second: str

    def numbers(self, options: str = "") -> list[int]:
        raw = {"raw": True} if "tfrecords" in self.name else {}
        return [_number(row) for row in read_folder(f"{self.root}{options}", **raw)]


@pytest.fixture(params=_LAYOUTS)
def layout(request: pytest.FixtureRequest, tmp_path: Path) -> _Layout:
    files, first, second = _LAYOUTS[request.param]
    return _Layout(name=request.param, root=put_files(tmp_path / "data", files), first=first, second=second)


class TestSplits:
    def test_several_are_refused_by_name_and_one_is_chosen(self, layout: _Layout) -> None:
        names = ", ".join(sorted((layout.first, layout.second)))
        with pytest.raises(
            DatasetError, match=rf"holds the splits {names}\. .*\?split={layout.first}'; split=all serves"
        ):
            layout.numbers()
        assert layout.numbers(f"?split={layout.first}") == [1, 2]
        assert layout.numbers(f"?split={layout.second}") == [3]
        with pytest.raises(ConfigError, match=rf"split must be .*{layout.second}.*, got 'other'"):
            layout.numbers("?split=other")

    def test_all_are_served_as_one_when_asked(self, layout: _Layout) -> None:
        if layout.name == "tfrecords_below":
            with pytest.raises(DatasetError, match="holds TFRecord files, such as train/part"):
                layout.numbers("?split=all")
        else:
            assert sorted(layout.numbers("?split=all")) == [1, 2, 3]

    def test_a_bucket_is_like_a_folder(self, layout: _Layout, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(choice, "make_client", _clients(layout.root))
        address = ObjectAddress.parse("s3://bucket/data")
        with pytest.raises(DatasetError, match="holds the splits"):
            open_dataset("d", address)
        for split in (layout.first, layout.second):
            options = {"split": split}
            with (
                open_dataset("d", address, options=options) as there,
                open_dataset("d", layout.root, options=options) as here,
            ):
                assert [entry.digest for entry in there.entries] == [entry.digest for entry in here.entries]

    def test_convert_takes_the_split_that_is_chosen(
        self, layout: _Layout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        kind = ["--from", "files"] if layout.name == "classes" else []
        assert command(["convert", str(layout.root), str(tmp_path / "out"), *kind]) == 2
        assert "holds the splits" in capsys.readouterr().err
        assert command(["convert", f"{layout.root}?split={layout.second}", str(tmp_path / "out"), *kind]) == 0
        assert len(read_folder(tmp_path / "out", raw=True)) == 1


def test_a_split_is_part_of_what_a_dataset_is(tmp_path: Path) -> None:
    put_files(tmp_path, _JSON_LINES)
    found: list[str] = []
    for options in ({"split": "train"}, {"split": "validation"}, {"split": "all"}, {"files": "my_t*"}):
        with open_dataset("d", tmp_path, options=options) as dataset:
            found.append(repr([(entry.name, entry.digest) for entry in dataset.entries]))
    assert found[0] == found[3]
    assert len(set(found[:3])) == 3


def test_classes_below_splits_keep_their_labels(tmp_path: Path) -> None:
    put_files(tmp_path, _CLASSES)
    train = read_folder(f"{tmp_path}?split=train")
    assert [(row["path"], int(row["label"])) for row in train] == [("cat/1.dat", 0), ("dog/2.dat", 1)]
    assert [int(row["label"]) for row in read_folder(f"{tmp_path}?split=all")] == [0, 1, 1]


def test_a_pattern_may_begin_with_the_folder_of_a_split(tmp_path: Path) -> None:
    put_files(tmp_path, _CLASSES)
    assert [row["path"] for row in read_folder(f"{tmp_path}?files=train/**")] == ["cat/1.dat", "dog/2.dat"]
    assert [row["path"] for row in read_folder(f"{tmp_path}?split=train&files=cat/*")] == ["cat/1.dat"]
    with pytest.raises(ConfigError, match="files must be a pattern such as"):
        read_folder(f"{tmp_path}?split=train&files=[z-a]*")


def test_a_pattern_that_begins_with_the_folder_of_a_split_holds_in_that_folder_alone(tmp_path: Path) -> None:
    put_files(
        tmp_path,
        {"train/a.jsonl": numbered_lines(1), "train/old/b.jsonl": numbered_lines(2), "val/a.jsonl": numbered_lines(3)},
    )
    assert [int(row["n"]) for row in read_folder(f"{tmp_path}?files=train/*.jsonl")] == [1]
    assert [int(row["n"]) for row in read_folder(f"{tmp_path}?split=train&files=/*.jsonl")] == [1]
    assert sorted(int(row["n"]) for row in read_folder(f"{tmp_path}?split=train&files=*.jsonl")) == [1, 2]


def test_splits_are_looked_for_at_the_top_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "data"
    put_files(root, {"train/test/1.dat": b"1", "val/test/2.dat": b"2"})
    monkeypatch.setattr(choice, "make_client", _clients(root))
    for place in (root, ObjectAddress.parse("s3://bucket/data")):
        with open_dataset("d", place, tmp_path / "cache", options={"split": "train"}) as dataset:
            assert dict(dataset.contents.label_names) == {0: "test"}


@pytest.mark.parametrize(
    "names", [("train_images", "test_images"), ("seg_train", "seg_test"), ("Training_Set", "val_set")]
)
def test_folders_that_differ_only_by_the_split_in_their_names_are_splits(
    names: tuple[str, str], tmp_path: Path
) -> None:
    put_files(tmp_path, {f"{name}/{kind}/1.jpg": _JPEG for name in names for kind in ("cat", "dog")})
    with pytest.raises(DatasetError, match=f"holds the splits {', '.join(sorted(names))}. Choose one"):
        read_folder(tmp_path)
    assert [int(row["label"]) for row in read_folder(f"{tmp_path}?split={names[0]}")] == [0, 1]
    assert sorted(int(row["label"]) for row in read_folder(f"{tmp_path}?split=all")) == [0, 0, 1, 1]


def _numbered(root: Path) -> None:
    for number in range(3):
        write_tfrecord(root / f"data-{number:05d}-of-00003.tfrecord", [b"%d" % number])


def _mapped(root: Path) -> None:
    _numbered(root)
    assert command(["index", "--mapping", str(root)]) == 0


def _mds(root: Path) -> None:
    put_files(root, numbered_mds({f"data-{number:05d}.mds": [number] for number in range(3)}))


def _megatron(root: Path) -> None:
    for number in range(3):
        write_megatron(root / f"data-{number:05d}", [[np.array([number, number])]], np.uint16)


@pytest.mark.parametrize("make", [_numbered, _mapped, _mds, _megatron])
@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_files_that_tell_of_shards_go_with_those_that_are_chosen(
    make: Callable[[Path], None], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    make(root)
    objects = {path.name: path.read_bytes() for path in root.iterdir()}
    monkeypatch.setattr(choice, "make_client", lambda _: FakeObjects(objects))
    at = ObjectAddress.parse("s3://bucket/data") if place == "bucket" else root
    ending = next(path.suffix for path in root.iterdir() if path.suffix in (".tfrecord", ".mds", ".bin"))
    with open_dataset("d", at, tmp_path / "cache") as dataset:
        whole = dataset.entries
        contents = dataset.contents
    with open_dataset("d", at, tmp_path / "cache", options={"files": f"data-0000[12]*{ending}"}) as dataset:
        assert dataset.entries == whole[1:]
        assert (dataset.contents.format, dataset.contents.settings) == (contents.format, contents.settings)
        assert dataset.missing == ()


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ("*.parquet", [1, 2, 3, 4]),
        ("en/*.parquet", [1, 3]),
        ("**/1.parquet", [1, 2]),
        ("*/[!1].parquet", [3, 4]),
        ("de/?.parquet", [2, 4]),
    ],
)
def test_files_are_chosen_by_a_pattern(pattern: str, numbers: list[int], tmp_path: Path) -> None:
    names = ("en/1", "de/1", "en/2", "de/2")
    put_files(tmp_path, {f"{name}.parquet": _parquet_bytes(number) for number, name in enumerate(names, 1)})
    assert sorted(_number(row) for row in read_folder(f"{tmp_path}?files={pattern}")) == numbers
    with pytest.raises(ConfigError, match=r"'fr/\*' matches none of 4, such as de/1.parquet"):
        read_folder(f"{tmp_path}?files=fr/*")
