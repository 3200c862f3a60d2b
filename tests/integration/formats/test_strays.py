"""Folders with strays, containers that are not read, and compressed files."""

import gzip
import io
import json
import logging
import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.prepare.convert import convert
from emlio.prepare.convert_options import ConvertOptions
from emlio_testing.datasets import write_tfrecord
from emlio_testing.format_files import numbered_lines, numbered_mds, put_files, read_folder

_JPEG = b"\xff\xd8\xff\xe0J"


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.parametrize(
    "stray", ["Thumbs.db", "meta.pkl", "cover.jpg", "desktop.ini", "README", "cat/Thumbs.db", "cat/notes.txt"]
)
def test_a_stray_file_costs_no_label_is_no_record_and_is_named(
    stray: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put_files(
        tmp_path,
        {"cat/1.jpg": _JPEG, "cat/2.jpg": _JPEG, "dog/1.jpg": _JPEG, stray: b"junk", "__MACOSX/cat/._1.jpg": b""},
    )
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            rows = read_folder(tmp_path)
        assert [(row["path"], int(row["label"])) for row in rows] == [
            ("cat/1.jpg", 0),
            ("cat/2.jpg", 0),
            ("dog/1.jpg", 1),
        ]
        # __MACOSX is one of them.
        assert len([line for line in caplog.messages if "2 files are left out" in line]) == 1


@pytest.mark.parametrize("names", [("train.txt", "test.txt"), ("train.csv", "val.csv"), ("train-1.jpg", "test-1.jpg")])
def test_files_named_for_splits_beside_folders_of_classes_cost_no_label(names: tuple[str, str], tmp_path: Path) -> None:
    put_files(tmp_path, {f"{label}/{number}.jpg": _JPEG for label in ("cat", "dog") for number in (1, 2)})
    put_files(tmp_path, dict.fromkeys(names, b"cat/1.jpg\n"))
    assert [(row["path"], int(row["label"])) for row in read_folder(tmp_path)] == [
        ("cat/1.jpg", 0),
        ("cat/2.jpg", 0),
        ("dog/1.jpg", 1),
        ("dog/2.jpg", 1),
    ]


def _database() -> bytes:
    made = sqlite3.connect(":memory:")
    made.execute("create table a (b)")
    return made.serialize()


_CONTAINERS: list[tuple[str, dict[str, bytes]]] = [
    ("HDF5", {"a.h5": b"", "b.h5": b"x"}),
    ("HDF5", {"data": b"\x89HDF\r\n\x1a\n"}),
    ("Zarr", {".zgroup": b"{}", "x/.zarray": b"{}", "x/0.0": b"1"}),
    ("Zarr", {"zarr.json": b"{}", "x/c/0": b"1", "x/c/1": b"1"}),
    ("Lance", {"t.lance/data/a.lance": b"1", "t.lance/_versions/1.manifest": b"1"}),
    ("LMDB", {"data.mdb": b"x", "lock.mdb": b"x"}),
    ("LitData", {"index.json": b'{"chunks": [], "config": {}}', "chunk-0-0.bin": b"x", "chunk-0-1.bin": b"x"}),
    ("FFCV", {"a.beton": b"x"}),
    ("JSON array", {"a.json": b' [{"a": 1}]'}),
    ("pickled", {"a.pt": b"PK", "cat/b.pt": b"PK"}),
    ("CSV", {"a.csv": b"file,label\na,1\n"}),
    ("SQLite", {"a.db": _database()}),
    ("Feather version 1", {"a": b"FEA1"}),
    ("Parquet", {"part-0": b"PAR1"}),
    ("safetensors", {"a.safetensors": b"x"}),
    ("compressed", {"a.tar.gz": gzip.compress(b"x")}),
    ("compressed", {"a.jsonl.zst": b"x"}),
]


@pytest.mark.parametrize(("name", "files"), _CONTAINERS)
def test_a_container_that_is_not_read_is_named(name: str, files: dict[str, bytes], tmp_path: Path) -> None:
    put_files(tmp_path, files)
    with pytest.raises(DatasetError, match=rf"holds {name} files, such as .*format=files"):
        read_folder(tmp_path)
    assert read_folder(f"{tmp_path}?format=files")


@pytest.mark.parametrize("to", ["tfrecord", "wds"])
@pytest.mark.parametrize("packed", ["jsonl.gz", "jsonl.zst", "json.gz", "tar.gz", "tgz", "tar.xz", "tar.bz2"])
def test_compressed_files_are_converted(packed: str, to: Any, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    kind, _, codec = packed.partition(".")
    if codec == "zst":
        data = arrow.compress(numbered_lines(1), codec="zstd", asbytes=True) + arrow.compress(
            numbered_lines(2), codec="zstd", asbytes=True
        )
        (source / f"a.{packed}").write_bytes(data)
    elif kind in ("jsonl", "json"):
        (source / f"a.{packed}").write_bytes(gzip.compress(numbered_lines(1)) + gzip.compress(numbered_lines(2)))
    else:
        modes: dict[str, Any] = {"gz": "w:gz", "": "w:gz", "xz": "w:xz", "bz2": "w:bz2"}
        with tarfile.open(source / f"a.{packed}", modes[codec]) as archive:
            for number in (1, 2):
                member = tarfile.TarInfo(f"{number}.n")
                member.size = 1
                archive.addfile(member, io.BytesIO(b"%d" % number))
    report = convert(ConvertOptions(source=source, out=out, to=to, shuffle=False))
    assert report.records == 2
    again = convert(ConvertOptions(source=source, out=out, to=to, shuffle=False))
    assert again.shards_found == again.shards  # unpacked files are those of the run before
    rows = read_folder(out)
    column = "json" if to == "wds" and kind in ("jsonl", "json") else "n"
    found = [row[column] for row in rows]
    texts = [bytes(value).decode() if isinstance(value, bytes | memoryview) else str(int(value)) for value in found]
    assert [json.loads(text) for text in texts] == ([{"n": 1}, {"n": 2}] if column == "json" else [1, 2])
    assert not list(out.glob(".emlio*"))


def test_files_are_not_chosen_among_compressed_shards_of_an_index(tmp_path: Path) -> None:
    put_files(tmp_path / "in", numbered_mds({f"data-{number:05d}.mds": [number] for number in range(3)}))
    for path in (tmp_path / "in").glob("*.mds"):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    with pytest.raises(ConfigError, match="files= cannot choose among compressed shards of MosaicML"):
        convert(
            ConvertOptions(source=tmp_path / "in", out=tmp_path / "out", source_options={"files": "data-00001.mds.gz"})
        )


def test_an_error_in_a_compressed_file_names_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_tfrecord(tmp_path / "plain", [b"1"])
    (tmp_path / "in" / "good.tfrecord.gz").write_bytes(gzip.compress((tmp_path / "plain").read_bytes()))
    (tmp_path / "in" / "torn.tfrecord.gz").write_bytes(gzip.compress((tmp_path / "plain").read_bytes()[:-1]))
    with pytest.raises(DatasetError, match=r"torn\.tfrecord\.gz: record 0"):
        convert(ConvertOptions(source=tmp_path / "in", out=tmp_path / "out"))


def test_a_compressed_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    put_files(tmp_path / "in", {"a.jsonl.gz": gzip.compress(numbered_lines(1))[:-3]})
    with pytest.raises(DatasetError, match="the compressed file is incomplete"):
        convert(ConvertOptions(source=tmp_path / "in", out=tmp_path / "out"))


def test_two_compressed_files_of_the_same_data_are_refused(tmp_path: Path) -> None:
    put_files(
        tmp_path / "in", {"a.jsonl.gz": gzip.compress(numbered_lines(1)), "a.json.gz": gzip.compress(numbered_lines(2))}
    )
    with pytest.raises(DatasetError, match=r"a\.jsonl\.gz and another file both hold a\.jsonl"):
        convert(ConvertOptions(source=tmp_path / "in", out=tmp_path / "out"))
    put_files(tmp_path / "in", {"a.jsonl": numbered_lines(3)})
    (tmp_path / "in" / "a.jsonl.gz").unlink()
    with pytest.raises(DatasetError, match=r"and another file both hold a\.jsonl"):
        convert(ConvertOptions(source=tmp_path / "in", out=tmp_path / "out"))


@pytest.mark.parametrize("name", ["a.jsonl", "a.tfrecord"])
def test_a_file_that_lies_beside_its_compressed_form_comes_once(name: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    if name == "a.jsonl":
        put_files(tmp_path / "in", {name: numbered_lines(1, 2)})
    else:
        write_tfrecord(tmp_path / "in" / name, [b"1", b"2"])
    (tmp_path / "in" / f"{name}.gz").write_bytes(gzip.compress((tmp_path / "in" / name).read_bytes()))
    assert convert(ConvertOptions(source=tmp_path / "in", out=tmp_path / "out")).records == 2


def test_a_column_has_one_member_name_whatever_its_values(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    floats = [1.5, float("nan"), 2.5, float("inf"), -float("inf"), 4.0]
    data = [_JPEG, b"no picture", b"", _JPEG, b"x", b"y"]
    table = arrow.table({"n": range(6), "f": arrow.array(floats), "h": arrow.array(floats, arrow.float32()), "b": data})
    parquet.write_table(table, tmp_path / "in" / "a.parquet")
    convert(ConvertOptions(source=tmp_path / "in", out=tmp_path / "out", to="wds", shuffle=False))
    rows = read_folder(tmp_path / "out", batch_size=6)
    assert {frozenset(row) for row in rows} == {frozenset({"__key__", "n.json", "f.json", "h.json", "b.bin"})}
    for name in ("f.json", "h.json"):
        np.testing.assert_array_equal([json.loads(bytes(row[name])) for row in rows], floats)
    assert [bytes(row["b.bin"]) for row in rows] == data
