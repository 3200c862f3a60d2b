"""Conversions from a source on the disk to a dataset that can be opened."""

import io
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path, PosixPath
from typing import Any

import numpy as np
import pytest
from PIL import Image

from emlio.cli import main
from emlio.errors import ConfigError, DatasetError
from emlio.example.decode import parse_example
from emlio.formats.tfrecord.mapping import read_mapping
from emlio.index.opening import open_dataset
from emlio.prepare.convert import ConvertReport, convert
from emlio.prepare.convert_options import ConvertOptions
from emlio.prepare.recipes import recipe_of
from emlio.prepare.sources.choice import guess_kind, open_source
from emlio.prepare.targets.shard_set import Recipe, write_shards
from emlio.prepare.targets.tally import Record
from emlio.prepare.targets.target import sole_writer
from emlio_testing.datasets import read_tfrecords
from emlio_testing.format_files import read_folder
from emlio_testing.written_datasets import files_of

_CLASSES, _IMAGES = 5, 40


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    for number in range(_CLASSES):
        folder = root / f"class{number}"
        folder.mkdir()
        for image in range(_IMAGES):
            buffer = io.BytesIO()
            Image.new("RGB", (16 + image, 16), (number * 40, image, 0)).save(buffer, "JPEG")
            (folder / f"{image:03d}.jpg").write_bytes(buffer.getvalue())
    return root


def _convert(source: Path, out: Path, **options: Any) -> ConvertReport:
    return convert(ConvertOptions(source=source, out=out, **options))


def _labels(out: Path) -> list[int]:
    return [int(parse_example(record)["image/class/label"][0]) for record in read_tfrecords(out)]


def test_a_converted_folder_opens_as_a_dataset_with_all_its_images(images: Path, tmp_path: Path) -> None:
    report = _convert(images, tmp_path / "out", shards=4)
    assert (report.source_kind, report.records, report.shards, report.classes) == ("image-folder", 200, 4, _CLASSES)
    encoded = {bytes(parse_example(record)["image/encoded"][0]) for record in read_tfrecords(tmp_path / "out")}
    assert encoded == {path.read_bytes() for path in images.glob("*/*.jpg")}
    with open_dataset("out", tmp_path / "out") as dataset:
        assert sum(shard.records for shard in dataset.shards) == 200
        assert not dataset.missing
    assert (tmp_path / "out" / "labels.txt").read_text().split() == [f"class{number}" for number in range(_CLASSES)]


def test_mappings_carry_the_schema_and_count_the_labels(images: Path, tmp_path: Path) -> None:
    _convert(images, tmp_path / "out", shards=3)
    total = dict.fromkeys(map(str, range(_CLASSES)), 0)
    for shard in range(3):
        mapping = read_mapping(tmp_path / "out" / f"mapping_shard_{shard:05d}.json")
        assert mapping.features["image/encoded"].kind == "bytes"
        assert mapping.features["image/class/label"].kind == "int64"
        assert mapping.features["image/class/label"].shape == (1,)
        assert mapping.label_counts is not None
        assert sum(mapping.label_counts.values()) == mapping.records
        assert mapping.label_names is not None
        assert mapping.label_names["0"] == "class0"
        for label, count in mapping.label_counts.items():
            total[label] += count
    assert total == dict.fromkeys(map(str, range(_CLASSES)), _IMAGES)


def test_records_are_mixed_by_default_and_not_when_told_so(images: Path, tmp_path: Path) -> None:
    _convert(images, tmp_path / "mixed", shards=2)
    _convert(images, tmp_path / "plain", shards=2, shuffle=False)
    plain, mixed = _labels(tmp_path / "plain"), _labels(tmp_path / "mixed")
    assert plain == sorted(plain)
    assert sorted(mixed) == plain
    assert all(set(mixed[start : start + 40]) == set(range(_CLASSES)) for start in range(0, 200, 40))


@pytest.mark.parametrize("to", ["tfrecord", "wds"])
def test_the_same_options_make_the_same_bytes_whatever_the_workers(images: Path, tmp_path: Path, to: Any) -> None:
    for name, workers in (("one", 1), ("many", 5)):
        _convert(images, tmp_path / name, shards=6, workers=workers, to=to)
    _convert(images, tmp_path / "other", shards=6, seed=1, to=to)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "many")
    one, other = ([bytes(row["record"]) for row in read_folder(tmp_path / name, raw=True)] for name in ("one", "other"))
    assert one != other
    assert sorted(one) == sorted(other)


def test_records_of_other_tfrecords_have_their_labels_counted(images: Path, tmp_path: Path) -> None:
    _convert(images, tmp_path / "first", shards=2)
    report = _convert(tmp_path / "first", tmp_path / "second", shards=3)
    assert (report.source_kind, report.records, report.classes) == ("tfrecord", 200, _CLASSES)
    assert sorted(read_tfrecords(tmp_path / "second")) == sorted(read_tfrecords(tmp_path / "first"))


def test_features_that_differ_from_record_to_record_have_no_shape(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"1")
    (tmp_path / "list.jsonl").write_text(
        '{"file": "a", "box": [1], "mixed": 1}\n{"file": "b", "box": [1, 2], "mixed": 2}\n'
        '{"file": "c", "box": [1], "mixed": "text"}\n'
    )
    _convert(tmp_path / "list.jsonl", tmp_path / "out")
    features = read_mapping(tmp_path / "out" / "mapping_shard_00000.json").features
    assert features["box"].shape is None
    assert features["data"].shape == (1,)
    assert "mixed" not in features


class TestGoingOn:
    def test_finished_shards_are_kept_and_the_rest_is_made_the_same(self, images: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        options = ConvertOptions(source=images, out=out, shards=6)
        convert(options)
        whole = files_of(out)
        kept = (out / "shard-00000-of-00006.tfrecord").stat().st_mtime_ns
        # What a killed process leaves: a shard without its mapping, one cut short, one that is gone, temporaries.
        (out / "mapping_shard_00002.json").unlink()
        cut_short = out / "shard-00003-of-00006.tfrecord"
        cut_short.write_bytes(cut_short.read_bytes()[:-100])
        (out / "shard-00004-of-00006.tfrecord").unlink()
        (out / ".shard-00005-of-00006.tfrecord.0123456789ab.tmp").write_bytes(b"left over")
        (out / ".mapping_shard_00005.json.0123456789ab.tmp").write_bytes(b"left over")
        (out / ".emlio-convert-unpacked").mkdir()
        (out / ".emlio-convert-unpacked" / "x").write_bytes(b"left over")
        report = convert(options)
        assert report.shards_found == 3
        assert files_of(out) == whole
        assert (out / "shard-00000-of-00006.tfrecord").stat().st_mtime_ns == kept

    @pytest.mark.parametrize("change", ["seed", "shards", "shuffle", "source"])
    def test_shards_of_another_conversion_are_refused_and_left_alone(
        self, images: Path, tmp_path: Path, change: str
    ) -> None:
        source = tmp_path / "images"
        shutil.copytree(images, source)
        out = tmp_path / "out"
        _convert(source, out, shards=2)
        before = files_of(out)
        if change == "source":
            (source / "class0" / "new.jpg").write_bytes((source / "class1" / "000.jpg").read_bytes())
        other = ConvertOptions(
            source=source,
            out=out,
            shards=3 if change == "shards" else 2,
            seed=1 if change == "seed" else 0,
            shuffle=change != "shuffle",
        )
        with pytest.raises(ConfigError, match=r"other options, see its prepared\.json.*--force"):
            convert(other)
        assert files_of(out) == before

    def test_force_replaces_the_dataset(self, images: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        _convert(images, out, shards=5)
        (out / "shard-00004-of-00005.idx").write_text("0 1\n")  # made by emlio index --dali
        _convert(images, out, shards=2, force=True)
        assert len(list(out.glob("*.tfrecord"))) == 2
        assert len(list(out.glob("mapping_shard_*.json"))) == 2
        assert not list(out.glob("*.idx"))

    @pytest.mark.parametrize("name", ["notes.md", "train-00000.tfrecord"])
    @pytest.mark.parametrize("made", [True, False])
    def test_force_never_writes_beside_what_others_made(
        self, images: Path, tmp_path: Path, name: str, made: bool
    ) -> None:
        out = tmp_path / "out"
        if made:
            _convert(images, out, shards=5)
        out.mkdir(exist_ok=True)
        (out / name).write_text("mine")
        before = files_of(out)
        for force in (True, False):
            with pytest.raises(ConfigError, match=repr(name)) as refused:
                _convert(images, out, shards=2, force=force)
            assert "--force" not in str(refused.value)
        assert files_of(out) == before

    def test_a_directory_with_other_files_is_refused(self, images: Path, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("x")
        with pytest.raises(ConfigError, match=r"must be empty.* holds 'thesis\.tex'"):
            _convert(images, tmp_path)

    def test_a_second_process_in_the_same_directory_is_refused(self, images: Path, tmp_path: Path) -> None:
        with sole_writer(tmp_path), pytest.raises(ConfigError, match="another process"):
            _convert(images, tmp_path)

    def test_a_refused_process_leaves_the_folder_that_another_one_made(self, tmp_path: Path) -> None:
        class NotSeen(PosixPath):
            def exists(self, **_: Any) -> bool:
                return False

        out = tmp_path / "out"
        with sole_writer(out):
            with pytest.raises(ConfigError, match="another process"), sole_writer(NotSeen(out)):
                pass
            assert out.is_dir()
        assert not out.exists()

    def test_a_folder_that_its_maker_removes_is_made_again(self, tmp_path: Path) -> None:
        removals = iter([True])

        class Removed(PosixPath):
            def mkdir(self, *args: Any, **options: Any) -> None:
                super().mkdir(*args, **options)
                if next(removals, False):
                    self.rmdir()

        with sole_writer(Removed(tmp_path / "out")):
            assert (tmp_path / "out").is_dir()

    def test_a_description_that_something_else_wrote_is_no_leave_to_replace(self, images: Path, tmp_path: Path) -> None:
        (tmp_path / "prepared.json").write_text('{"digest": "0", "made_by": "another program"}')
        with pytest.raises(ConfigError, match=r"holds 'prepared\.json'"):
            _convert(images, tmp_path, force=True)


class TestBadItems:
    @pytest.fixture
    def broken(self, images: Path, tmp_path: Path) -> Path:
        source = tmp_path / "images"
        shutil.copytree(images, source)
        (source / "class1" / "007.jpg").write_bytes(b"this is no image")
        (source / "class3" / "009.jpg").write_bytes(b"")
        return source

    def test_an_unreadable_item_is_named_with_the_way_out(self, broken: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        with pytest.raises(DatasetError, match=r"class[13]/00[79]\.jpg: .*--on-error skip"):
            _convert(broken, out, shards=4)
        assert not list(out.glob(".*"))

    def test_skipped_items_are_counted_and_listed_even_by_a_later_run(self, broken: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        with pytest.raises(DatasetError):
            _convert(broken, out, shards=4)
        options = ConvertOptions(source=broken, out=out, shards=4, on_error="skip")
        for found in (None, 4):
            report = convert(options)
            assert found is None or report.shards_found == found
            assert report.records == 198
            assert {
                name for line in report.skipped for name in ("class1/007.jpg", "class3/009.jpg") if name in line
            } == {
                "class1/007.jpg",
                "class3/009.jpg",
            }
            assert len(report.skipped) == 2

    @pytest.mark.parametrize("to", ["tfrecord", "wds"])
    def test_no_dataset_is_made_of_a_source_without_a_readable_item(self, tmp_path: Path, to: Any) -> None:
        (tmp_path / "images" / "class").mkdir(parents=True)
        for number in range(3):
            (tmp_path / "images" / "class" / f"{number}.jpg").write_bytes(b"no picture")
        out = tmp_path / "out"
        with pytest.raises(DatasetError, match="not a known image format") as caught:
            _convert(tmp_path / "images", out, shards=2, to=to)
        assert "--on-error" not in str(caught.value)
        for _ in range(2):
            with pytest.raises(DatasetError, match=r"all were skipped: .*not a known image format"):
                _convert(tmp_path / "images", out, shards=2, to=to, on_error="skip")
            assert [path.name.lstrip(".") for path in out.iterdir()] == ["prepared.json"]

    @pytest.mark.parametrize("source", ["images", "again"])
    @pytest.mark.parametrize(
        ("change", "reason"), [(os.utime, "changed during the conversion"), (os.unlink, "No such file or directory")]
    )
    def test_what_is_no_items_fault_is_never_skipped(
        self, images: Path, tmp_path: Path, source: str, change: Callable[[Path], None], reason: str
    ) -> None:
        shutil.copytree(images, tmp_path / "images")
        if source == "again":
            _convert(images, tmp_path / "again", shards=1)
        options = ConvertOptions(source=tmp_path / source, out=tmp_path / "out", shards=1, on_error="skip")
        kind = guess_kind(options.source)
        with closing(open_source(options.source, kind, None, tmp_path / "unpacked", {}, options.settings)) as opened:
            records = recipe_of(options, kind, opened, lambda _: None).records(0)
            next(records)
            for path in [*options.source.rglob("*.jpg"), *options.source.rglob("*.tfrecord")]:
                change(path)
            with pytest.raises(DatasetError, match=reason) as caught:
                next(records)
        assert "--on-error" not in str(caught.value)


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--shard-size", "large"], "--shard-size must be a size"),
            (["--shard-size", "10"], "at least 1024 bytes, got 10"),
            (["--shards", "0"], r"must be in [1, 99999], got 0"),
            (["--shards", "201"], "at most 200, the number of records, got 201"),
            (["--workers", "0"], "--workers must be at least 1, got 0"),
            (["--labels", "/nowhere/labels.txt"], "labels /nowhere/labels.txt: cannot be read"),
            (["--from", "webdataset"], "must hold .tar files, holds none"),
        ],
    )
    def test_options_that_cannot_be_are_refused_in_one_line(
        self, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
    ) -> None:
        assert main(["convert", str(images), str(tmp_path / "out"), *words]) == 2
        printed = capsys.readouterr().err
        assert printed.startswith("emlio convert: error: ")
        assert message in printed
        assert printed.count("\n") == 1
        assert not (tmp_path / "out").exists()

    def test_a_source_that_is_not_there_is_named(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["convert", str(tmp_path / "nowhere"), str(tmp_path / "out")]) == 2
        assert "nowhere: no such file or directory" in capsys.readouterr().err

    def test_an_empty_directory_is_no_source(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "in").mkdir()
        assert main(["convert", str(tmp_path / "in"), str(tmp_path / "out")]) == 2
        assert "the folder is empty" in capsys.readouterr().err

    def test_source_and_target_must_not_contain_each_other(self, images: Path) -> None:
        for out in (images, images.parent, images / "out"):
            with pytest.raises(ConfigError, match="out must not"):
                ConvertOptions(source=images, out=out)

    def test_a_disk_with_too_little_room_is_refused_before_anything_is_written(self, tmp_path: Path) -> None:
        recipe = Recipe(
            digest="0" * 32,
            description={},
            bounds=np.array([0, 1], dtype=np.int64),
            shard_bytes=np.array([1 << 60], dtype=np.int64),
            records=lambda _: iter([Record(parts=(b"x",))]),
        )
        with (
            sole_writer(tmp_path / "out"),
            pytest.raises(DatasetError, match=rf"needs about {1 << 60} bytes .* free"),
        ):
            write_shards(tmp_path / "out", recipe, workers=1, verify=True, force=False, progress=False)
        assert not list((tmp_path / "out").glob("*.tfrecord"))
