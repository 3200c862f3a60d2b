"""`emlio index` and `emlio inspect`: what they print and return, and the pictures and mappings they make."""

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import ImageFont

from emlio.cli import index, inspect
from emlio.errors import ConfigError, DatasetError
from emlio.example import encode_example
from emlio.formats.contents import FieldType
from emlio.formats.tfrecord.mapping import Feature, mapping_name, read_mapping
from emlio.index.dali_index import write_dali_index
from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog
from emlio.prepare.mappings import describe_directory, write_mapping
from emlio.reading.preview import draw_preview
from emlio.reading.random_reader import spread
from emlio_testing.datasets import make_dataset, write_tfrecord
from emlio_testing.format_files import tar_of
from emlio_testing.pictures import encoded_picture

NAME = "train-00001-of-00003.tfrecord"


def call(command: ModuleType, *words: object) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    code = command.run(parser.parse_args([str(word) for word in words]))
    assert isinstance(code, int)
    return code


def jpeg(record: int, size: tuple[int, int] = (40, 30)) -> bytes:
    return encoded_picture(size=size, colour=(record * 7 % 256, record * 31 % 256, 90))


def image_example(record: int) -> bytes:
    return encode_example({"image/encoded": jpeg(record), "image/class/label": record % 3, "weight": [0.5, 1.5]})


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "data", records=30, shards=3, mapped=False)
    return tmp_path / "data"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "images", records=40, shards=3, mapped=False, payload=image_example)
    return tmp_path / "images"


def damage(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_index_goes_on_after_a_directory_that_fails(
    foreign: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(index, tmp_path / "gone", foreign) == 1
    out = capsys.readouterr()
    assert "emlio index: dataset directory" in out.err
    assert "no such directory" in out.err
    assert "30 records" in out.out


def test_index_names_shards_that_are_elsewhere(foreign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (foreign / NAME).unlink()
    assert call(index, foreign) == 0
    assert f"1 shard is missing, for example {NAME}" in capsys.readouterr().out


def test_index_writes_dali_indexes_and_notices_wrong_ones(foreign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(index, foreign, "--dali") == 0
    assert "3 DALI indexes written" in capsys.readouterr().out
    assert call(index, foreign) == 0
    path = foreign / "train-00001-of-00003.idx"
    offsets = open_dataset("d", foreign).shards[1].offsets
    for wrong, reason in (
        (offsets[:-2], "does not match this shard"),
        (np.delete(offsets, 2), "does not match the records"),
    ):
        write_dali_index(path, wrong)
        assert call(index, foreign) == 1
        err = capsys.readouterr().err
        assert reason in err
        assert f"emlio index --dali {foreign}" in err
    assert call(index, foreign, "--dali") == 0


def test_index_describes_shards(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(index, images, "--mapping") == 0
    assert "3 mappings written" in capsys.readouterr().out
    mapping = read_mapping(images / mapping_name(1))
    assert (mapping.shard_index, mapping.shard_count, mapping.file) == (1, 3, NAME)
    assert mapping.records == 13
    assert mapping.features == {
        "image/encoded": Feature(kind="bytes"),
        "image/class/label": Feature(kind="int64"),
        "weight": Feature(kind="float"),
    }
    write_mapping(images, replace(mapping, label_counts={"0": 1}))
    assert call(index, images, "--mapping") == 0
    assert read_mapping(images / mapping_name(1)).label_counts == {"0": 1}


def test_index_describes_changed_shards_again_only_by_force(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(index, images, "--mapping")
    write_tfrecord(images / NAME, [image_example(1)])
    assert call(index, images) == 1
    assert f"emlio index --force --mapping {images}" in capsys.readouterr().err
    assert call(index, images, "--mapping", "--force") == 0
    assert read_mapping(images / mapping_name(1)).records == 1


def test_hosts_with_different_shards_of_a_dataset_number_them_alike(foreign: Path) -> None:
    (foreign / "train-00000-of-00003.tfrecord").unlink()
    (foreign / mapping_name(7)).write_text("stale")
    assert describe_directory(foreign) == (foreign / mapping_name(1), foreign / mapping_name(2))
    assert not (foreign / mapping_name(7)).exists()
    with open_dataset("d", foreign) as dataset:
        assert dataset.missing == ("train-00000-of-00003.tfrecord",)


def test_a_folder_that_cannot_hold_mappings_is_named(foreign: Path) -> None:
    (foreign / mapping_name(1)).mkdir()
    with pytest.raises(DatasetError, match=r"mappings cannot be written to .*data"):
        describe_directory(foreign)


def test_inspect_shows_the_figures(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(inspect, images) == 0
    out = capsys.readouterr().out
    with open_dataset("d", images) as dataset:
        fingerprint = Catalog(shards=dataset.entries).fingerprint
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == str(images)
    assert lines[1] == "format tfrecord"
    assert lines[2].startswith("shards 3 (")
    assert lines[2].endswith("without mappings")
    assert "records 40" in lines
    assert f"fingerprint {fingerprint}" in lines
    assert "features image/class/label int64 (from a sample of records)" in lines
    assert "weight float32" in lines
    assert "labels unknown: not in the mappings" in lines


def test_inspect_shows_labels_and_missing_shards(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    describe_directory(images)
    for place, count in ((0, 10), (1, 7), (2, 3)):
        mapping = read_mapping(images / mapping_name(place))
        names = {"0": "cat", "1": "dog\x1b[31m"}
        write_mapping(images, replace(mapping, label_counts={"0": count, "1": 1}, label_names=names))
    call(inspect, images)
    assert "labels       2: 0 cat: 20, '1 dog\\x1b[31m: 3'" in capsys.readouterr().out
    (images / NAME).unlink()
    assert call(inspect, images) == 0
    out = capsys.readouterr().out
    assert f"missing      1: {NAME}" in out
    assert "labels       2: 0 cat: 13" in out
    write_mapping(images, replace(read_mapping(images / mapping_name(0)), label_counts=None))
    call(inspect, images)
    assert "labels       unknown" in capsys.readouterr().out


def test_inspect_does_not_say_that_there_are_no_labels_where_they_have_no_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of([("1.jpg", b"picture"), ("1.cls", b"3")]))
    assert call(inspect, tmp_path) == 0
    out = capsys.readouterr().out
    assert "labels" not in out
    assert "cls  bytes" in out


def test_of_few_records_the_largest_is_the_99th_percentile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_dataset(tmp_path, records=2, shards=1, payload=lambda record: bytes(10 * record + 1))
    call(inspect, tmp_path, "--json")
    sizes = json.loads(capsys.readouterr().out)["record_sizes"]
    assert (sizes["p50"], sizes["p99"], sizes["max"]) == (1, 11, 11)


def test_inspect_prints_one_json_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_dataset(tmp_path, records=200, shards=3, payload=lambda record: bytes(record + 1))
    assert call(inspect, tmp_path, "--json", "--verify") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["record_sizes"] == {"min": 1, "mean": 100.5, "p50": 100, "p99": 198, "max": 200}
    assert (facts["shards"], facts["records"], facts["missing"], facts["mapped"]) == (3, 200, [], True)
    assert (facts["features"], facts["label_counts"], facts["bad_records"]) == ({}, None, [])
    call(inspect, tmp_path, "--json")
    assert json.loads(capsys.readouterr().out)["bad_records"] is None


def test_inspect_reports_every_bad_record(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(inspect, images, "--verify") == 0
    assert "checked      40 records, 0 bad" in capsys.readouterr().out
    with open_dataset("d", images) as dataset:
        shards, paths = dataset.shards, dataset.shard_paths
    for shard, record in ((0, 0), (0, 12), (2, 5)):
        damage(paths[shard], int(shards[shard].offsets[record]) + 30)
    assert call(inspect, images, "--verify", "--preview", images / "out.png") == 1
    out = capsys.readouterr()
    assert "checked      40 records, 3 bad" in out.out
    assert [line.split("record ")[1].split(" ")[0] for line in out.err.splitlines()] == ["0", "12", "5"]
    assert not (images / "out.png").exists()
    assert call(inspect, images, "--verify", "--json") == 1
    bad = json.loads(capsys.readouterr().out)["bad_records"]
    assert [(entry["shard"], entry["record"]) for entry in bad] == [
        (shards[0].name, 0),
        (shards[0].name, 12),
        (shards[2].name, 5),
    ]
    assert bad[1]["offset"] == int(shards[0].offsets[12])


def test_inspect_finds_pictures_that_cannot_be_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def example(record: int) -> bytes:
        picture = jpeg(record)
        torn = {3: picture[: len(picture) // 2], 17: b"no picture", 21: picture[:-2]}
        return encode_example({"image/encoded": torn.get(record, picture), "label": record, "name": b"of a file"})

    make_dataset(tmp_path, records=40, shards=3, payload=example)
    assert call(inspect, tmp_path, "--verify") == 0, "the checksums are right"
    capsys.readouterr()
    assert call(inspect, tmp_path, "--decode") == 1
    out = capsys.readouterr()
    assert "decoded      40 pictures of image/encoded, 3 bad" in out.out
    told = [line.partition(": record ")[2] for line in out.err.splitlines()]
    assert [(line.split()[0], "image/encoded: " in line) for line in told] == [("3", True), ("4", True), ("8", True)]
    assert "Pillow cannot decode it: OSError: " in told[0]
    assert "Pillow cannot decode it: UnidentifiedImageError: cannot identify image file" in told[1]
    assert "BytesIO" not in told[1]
    with open_dataset("d", tmp_path) as dataset:
        damage(dataset.shard_paths[1], int(dataset.shards[1].offsets[4]) + 30)
        damage(dataset.shard_paths[2], int(dataset.shards[2].offsets[0]) + 30)
    assert call(inspect, tmp_path, "--decode", "--verify", "--json") == 1
    bad = json.loads(capsys.readouterr().out)["bad_records"]
    assert sorted((entry["shard"][6:11], entry["record"]) for entry in bad) == [
        ("00000", 3),
        ("00001", 4),
        ("00001", 8),
        ("00002", 0),
    ], "each once"


def test_inspect_decodes_pictures_that_are_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(6):
        folder = tmp_path / "cats" if number % 2 else tmp_path / "dogs"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.jpg").write_bytes(jpeg(number) if number != 5 else jpeg(number)[:200])
    assert call(inspect, tmp_path, "--decode") == 1
    out = capsys.readouterr()
    assert "decoded      6 pictures of data, 1 bad" in out.out
    assert out.err.count("\n") == 1
    assert "cats/5.jpg" in out.err


def test_inspect_has_nothing_to_decode_without_pictures(foreign: Path) -> None:
    with pytest.raises(DatasetError, match="nothing to decode, no picture in the sampled records"):
        call(inspect, foreign, "--decode")


def test_what_holds_no_pictures_is_verified_all_the_same(foreign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(inspect, foreign, "--verify", "--decode") == 0
    out = capsys.readouterr().out
    assert " 0 bad" in out
    assert "decoded      nothing: no picture in the sampled records" in out


def test_records_that_are_no_examples_have_no_features(foreign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(inspect, foreign) == 0
    assert "features     unknown: the sampled records are not tf.train.Example" in capsys.readouterr().out


def test_a_feature_of_two_kinds_is_left_out(tmp_path: Path) -> None:
    records = [encode_example({"a": 1, "b": b"x"}), encode_example({"a": 1.5, "b": b"y"})]
    write_tfrecord(tmp_path / "a.tfrecord", records)
    with open_dataset("d", tmp_path) as dataset:
        assert dataset.contents.schema == {"b": FieldType("bytes")}
    (mapping,) = describe_directory(tmp_path)
    assert read_mapping(mapping).features == {"b": Feature(kind="bytes")}


def test_samples_are_spread_from_the_first_to_the_last() -> None:
    assert spread(3, 8) == [0, 1, 2]
    assert spread(100, 4) == [0, 33, 66, 99]
    assert spread(100, 1) == [0]
    assert spread(0, 4) == []


def drawn(folder: Path, label: str) -> bytes:
    """The sheet of a dataset with one class."""
    (folder / label).mkdir(parents=True)
    (folder / label / "a.jpg").write_bytes(jpeg(1))
    with open_dataset("d", folder) as dataset:
        draw_preview(dataset, folder.with_suffix(".png"))
    return folder.with_suffix(".png").read_bytes()


def test_a_preview_writes_letters_of_any_language_or_spells_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert drawn(tmp_path / "a", "Großer Bär") != drawn(tmp_path / "b", "Gro?er B?r")

    its_own = ImageFont.truetype

    def lacks(font: Any, *options: Any, **named: Any) -> Any:
        if isinstance(font, str):
            raise OSError("cannot open resource")
        return its_own(font, *options, **named)

    monkeypatch.setattr(ImageFont, "truetype", lacks)
    assert drawn(tmp_path / "c", "Großer Bär") == drawn(tmp_path / "d", "Grosser Bar")


def test_a_preview_takes_bare_images_and_leaves_out_what_is_none(tmp_path: Path) -> None:
    records = [jpeg(1, (3000, 20)), b"no image", encode_example({"a": b"none", "b": jpeg(2)}), jpeg(3)[:200]]
    write_tfrecord(tmp_path / "a.tfrecord", records)
    with open_dataset("d", tmp_path) as dataset:
        assert draw_preview(dataset, tmp_path / "sheet.jpg") == 2
        with pytest.raises(ConfigError, match="the picture cannot be written"):
            draw_preview(dataset, tmp_path / "sheet.unknown")


def test_a_preview_of_a_dataset_without_images_says_so(foreign: Path) -> None:
    with open_dataset("d", foreign) as dataset, pytest.raises(DatasetError, match="nothing to preview"):
        draw_preview(dataset, foreign / "sheet.png")


def test_index_keeps_indexes_where_it_is_told(foreign: Path, tmp_path: Path) -> None:
    assert call(index, foreign, "--cache-dir", tmp_path / "c") == 0
    assert list((tmp_path / "c").rglob("bounds.npy"))


def test_a_preview_without_pillow_says_what_to_install(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with open_dataset("d", images) as dataset, pytest.raises(ConfigError, match='pip install "pillow'):
        draw_preview(dataset, tmp_path / "sheet.png")
    assert os.listdir(tmp_path) == ["images"]
