"""Conversions to WebDataset tars from every kind of source, read again as a dataset."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from emlio.cli import main
from emlio.errors import ConfigError, DatasetError
from emlio.index.opening import open_dataset
from emlio.prepare.convert import ConvertReport, convert
from emlio.prepare.convert_options import ConvertOptions
from emlio_testing.datasets import write_tfrecord
from emlio_testing.format_files import read_folder, tar_of
from emlio_testing.written_datasets import files_of

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    for number in range(3):
        (root / f"class{number}").mkdir()
        for image in range(20):
            buffer = io.BytesIO()
            Image.new("RGB", (16 + image, 16), (number * 40, image, 0)).save(
                buffer, "PNG" if image % 5 == 0 else "JPEG"
            )
            (root / f"class{number}" / f"{image:03d}.JPG").write_bytes(buffer.getvalue())
    return root


def _to_tars(source: Path, out: Path, **options: Any) -> ConvertReport:
    return convert(ConvertOptions(source=source, out=out, to="wds", **{"check": "header", **options}))


def _samples(out: Path) -> dict[str, dict[str, bytes]]:
    """Return the samples as a loader of ours gets them, by key; the folder is recognised."""
    with open_dataset("out", out) as dataset:
        assert dataset.contents.format == "tar"
    rows = read_folder(out, batch_size=1)
    found = {
        str(row.pop("__key__")): {name: bytes(data) for name, data in row.items() if data is not None} for row in rows
    }
    assert len(found) == len(rows)
    return found


def test_pictures_in_class_folders_become_samples_with_labels(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = _to_tars(images, out, shards=4)
    assert (report.source_kind, report.records, report.shards, report.classes) == ("image-folder", 60, 4, 3)
    assert sorted(path.name for path in out.glob("*") if not path.name.startswith(".")) == [
        "labels.txt",
        *(f"shard-{shard:05d}-of-00004.tar" for shard in range(4)),
    ]
    assert report.size_bytes == sum(path.stat().st_size for path in out.glob("*.tar"))
    samples = _samples(out)
    for path in images.glob("*/*"):
        extension = "png" if int(path.stem) % 5 == 0 else "jpg"
        key = f"{path.parent.name}/{path.stem}"
        assert samples.pop(key) == {extension: path.read_bytes(), "cls": path.parent.name[-1].encode()}
    assert samples == {}
    assert (out / "labels.txt").read_text().split() == ["class0", "class1", "class2"]


def test_tars_are_written_anew_with_the_same_samples(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    wanted: dict[str, dict[str, bytes]] = {}
    for part in range(3):
        members: list[tuple[str, bytes]] = []
        for number in range(30):
            key = f"./d.{part}/{number:04d}" + "n" * (number % 3 * 60)
            sample = {"jpg": bytes([number]) * number * 40, "cls": b"not a number", "seg.png": b"", "json": b"{}"}
            members += [(f"{key}.{extension}", data) for extension, data in sample.items()]
            wanted[key] = sample
        (source / f"{part}.tar").write_bytes(tar_of(members, tarfile.GNU_FORMAT))
    assert _to_tars(source, tmp_path / "out", shards=5).records == 90
    assert _samples(tmp_path / "out") == wanted
    again = _to_tars(tmp_path / "out", tmp_path / "again", shards=2)
    assert (again.source_kind, again.ignored.count) == ("webdataset", 0)
    assert _samples(tmp_path / "again") == wanted


def test_keys_that_begin_again_in_each_tar_are_refused_and_can_be_numbers(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for part in range(2):
        (source / f"{part}.tar").write_bytes(tar_of((f"{number}.txt", b"%d" % part) for number in range(5)))
    with pytest.raises(DatasetError, match=r"\d\.tar: \d: must have a key of its own .* item \d has '\d', too.*--keys"):
        _to_tars(source, tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.tar"))
    words = ["convert", str(source), str(tmp_path / "numbers"), "--to", "wds", "--keys", "numbers"]
    assert main(words) == 0
    assert {key: row["txt"] for key, row in _samples(tmp_path / "numbers").items()} == {
        f"{number:09d}": b"%d" % (number // 5) for number in range(10)
    }


def _npy(data: bytes) -> Any:
    return np.load(io.BytesIO(data), allow_pickle=False)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("workers", [1, 4])
def test_equal_keys_are_refused_in_whichever_shards_they_are(tmp_path: Path, seed: int, workers: int) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.tar").write_bytes(tar_of([(f"{number}.txt", bytes(900)) for number in range(20)]))
    (source / "b.tar").write_bytes(tar_of([(f"{number}.txt", bytes(900)) for number in range(19, 40)]))
    options: dict[str, Any] = {"source_kind": "webdataset", "shards": 10, "seed": seed, "workers": workers}
    with pytest.raises((DatasetError, ConfigError), match=r"must have a key of its own.*'19'.*--keys numbers"):
        _to_tars(source, tmp_path / "out", **options)
    with pytest.raises((DatasetError, ConfigError), match=r"must have a key of its own.*'19'.*--keys numbers"):
        _to_tars(source, tmp_path / "out", **options)  # also if all other shards are finished
    assert len(list((tmp_path / "out").glob("*.tar"))) < 10
    assert _to_tars(source, tmp_path / "numbers", keys="numbers", **options).records == 41


def test_arrays_and_archives_are_members_of_their_names(tmp_path: Path) -> None:
    for name in ("b", "a"):
        for kind in ("npy", "npz"):
            (tmp_path / kind / name).mkdir(parents=True)
        for number in range(4):
            array = np.full((2, number), number, np.float16)
            np.save(tmp_path / "npy" / name / f"{number}.x.npy", array)
            np.savez(tmp_path / "npz" / name / f"{number}.npz", x=array, label=np.int64(number))
    for kind in ("npy", "npz"):
        assert _to_tars(tmp_path / kind, tmp_path / f"out-{kind}", shards=2).classes == 2
    arrays, archives = _samples(tmp_path / "out-npy"), _samples(tmp_path / "out-npz")
    for label, name in enumerate("ab"):
        for number in range(4):
            wanted = np.full((2, number), number, np.float16)
            sample = arrays.pop(f"{name}/{number}_x")
            assert sample.keys() == {"npy", "cls"}
            archive = archives.pop(f"{name}/{number}")
            assert archive.keys() == {"x.npy", "label.npy", "cls"}
            assert sample["cls"] == archive["cls"] == b"%d" % label
            assert _npy(archive["label.npy"]) == number
            for one in (_npy(sample["npy"]), _npy(archive["x.npy"])):
                assert (one.dtype, one.shape, one.tolist()) == (wanted.dtype, wanted.shape, wanted.tolist())
    assert (arrays, archives) == ({}, {})


def test_lines_of_json_are_members_as_they_are(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    lines = [json.dumps({"n": number << 60, "text": "ü", "list": [1, None]}).encode() for number in range(50)]
    (source / "a.jsonl").write_bytes(b"\r\n\n".join(lines))
    _to_tars(source, tmp_path / "out", shards=3)
    assert _samples(tmp_path / "out") == {f"{number:09d}": {"json": line} for number, line in enumerate(lines)}


def test_records_go_to_tfrecord_files_and_back(images: Path, tmp_path: Path) -> None:
    _to_tars(images, tmp_path / "tars", shards=2)
    convert(ConvertOptions(source=tmp_path / "tars", out=tmp_path / "records", shards=3))
    assert _to_tars(tmp_path / "records", tmp_path / "back", shards=4).classes == 3
    assert _samples(tmp_path / "back") == _samples(tmp_path / "tars")
    write_tfrecord(tmp_path / "raw.tfrecord", [b"no Example", b"at all"])
    _to_tars(tmp_path / "raw.tfrecord", tmp_path / "raw")
    assert _samples(tmp_path / "raw") == {"000000000": {"bin": b"no Example"}, "000000001": {"bin": b"at all"}}


def test_shards_have_the_size_that_is_asked_for(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.jsonl").write_text("".join(f'{{"n": {number}}}\n' for number in range(3000)))
    report = _to_tars(source, tmp_path / "out", shard_bytes=256 << 10)
    assert report.size_bytes > 3000 * 1024
    sizes = [path.stat().st_size for path in (tmp_path / "out").glob("*.tar")]
    assert len(sizes) == 12
    assert all(0.9 * (256 << 10) < size < 1.1 * (256 << 10) for size in sizes)


class TestRefusals:
    def test_a_dataset_made_otherwise_is_left_alone_and_replaced_by_force(self, images: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        convert(ConvertOptions(source=images, out=out, shards=2))
        before = files_of(out)
        with pytest.raises(ConfigError, match=r"see its prepared\.json.*--force"):
            _to_tars(images, out, shards=2)
        assert files_of(out) == before
        _to_tars(images, out, shards=3, force=True)
        assert not list(out.glob("*.tfrecord*")) + list(out.glob("mapping*"))
        before = files_of(out)
        for to in ("tfrecord", "wds"):
            with pytest.raises(ConfigError, match=r"see its \.prepared\.json.*--force"):
                convert(ConvertOptions(source=images, out=out, shards=2, to=to))  # type: ignore[arg-type]
        assert files_of(out) == before
        convert(ConvertOptions(source=images, out=out, shards=2, force=True))
        assert not [name for name in files_of(out) if name.startswith(".") or name.endswith(".tar")]

    def test_keys_are_for_tars_only(self, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["convert", str(images), str(tmp_path / "out"), "--keys", "numbers"]) == 2
        assert "--keys numbers must be given with --to wds" in capsys.readouterr().err
        with pytest.raises(ConfigError, match="--to must be one of tfrecord, wds, got 'tar'"):
            ConvertOptions(source=images, out=tmp_path / "out", to="tar")  # type: ignore[arg-type]

    def test_items_that_cannot_be_are_named_or_skipped(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "in" / "a").mkdir(parents=True)
        for name, shade in (("1.png", 1), ("1.x.png", 2), ("1_x.png", 3), ("n" * 248 + ".png", 4)):
            Image.new("L", (4, 4), shade).save(tmp_path / "in" / "a" / name)
        (tmp_path / "in" / "a" / "2.png").write_bytes(b"no picture")
        out = tmp_path / "out"
        with pytest.raises(DatasetError, match=r"in/a/.*--on-error skip"):
            _to_tars(tmp_path / "in", out, check="decode")
        assert not list(out.glob("*.tar")) + list(out.glob(".*.tmp"))
        assert main(["convert", str(tmp_path / "in"), str(out), "--to", "wds", "--on-error", "skip"]) == 0
        printed = capsys.readouterr().out
        assert "skipped: 2 items that could not be read, listed in " in printed
        assert f"{out}/.skipped_shard_*.txt" in printed
        assert "a/2.png" in printed
        assert "'a/1_x', too" in printed
        assert len(_samples(out)) == 3
