"""Folders written by the libraries that define a format, compared record by record with what these libraries read.

Covers: webdataset (all forms of tars, long names, what lies between members, tars that are written here),
mosaicml-streaming (all encodings but pickles, several shards, compressed shards, streams), Hugging Face's datasets
(splits on disk and as tables). Does not cover: formats whose definition needs no library of its own
(tests/integration/formats/test_differential.py), files that are damaged.
"""

import importlib.util
import io
import json
import os
import random
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.prepare.convert import convert
from emlio.prepare.convert_options import ConvertOptions
from emlio_testing.format_files import read_folder, tar_of

SIDE = Path(__file__).with_name("formats_side.py")
RECORDS = 60

pytestmark = pytest.mark.interop
needs_webdataset = pytest.mark.skipif(
    importlib.util.find_spec("webdataset") is None, reason="webdataset is not installed: scripts/test --interop"
)
needs_streaming = pytest.mark.skipif(
    importlib.util.find_spec("streaming") is None, reason="mosaicml-streaming is not installed: scripts/test --interop"
)

needs_datasets = pytest.mark.skipif(
    importlib.util.find_spec("datasets") is None, reason="datasets is not installed: scripts/test --interop"
)

Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def _side(*words: str) -> Rows:
    done = subprocess.run(
        [sys.executable, str(SIDE), *words],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def _plain(value: Any) -> Any:
    """A value of ours as the other side writes it."""
    if isinstance(value, bytes | memoryview):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        return [array.dtype.str, list(array.shape), array.tobytes().hex()]
    if isinstance(value, Decimal):
        return ["decimal", str(value)]
    if isinstance(value, float):
        return ["float", value.hex()]
    return value


def _plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in row.items()}


def _rows(folder: Path, **options: Any) -> Rows:
    return [_plain_row(row) for row in read_folder(folder, **options)]


def _there(folder: Path) -> Rows:
    """The values that each record has: one that it lacks is None."""
    return [{name: value for name, value in row.items() if value is not None} for row in _rows(folder)]


# ---- webdataset -----------------------------------------------------------------------------------------------------


@needs_webdataset
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tars_of_webdataset_give_the_samples_that_it_reads(form: int, tmp_path: Path) -> None:
    _side("write-tars", str(tmp_path / "tars"), str(form))
    told = _side("read-tars", str(tmp_path / "tars"))
    assert _there(tmp_path / "tars") == told
    assert len(told) == RECORDS


@needs_webdataset
@pytest.mark.parametrize("seed", range(4))
def test_generated_tars_give_the_samples_that_webdataset_reads(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    splits = draw.choice(((), ("train", "val"), ("train", "dev", "test")))
    members = draw.sample(("jpg", "cls", "json", "txt", "seg.png"), draw.randrange(1, 5))
    told: dict[str, Rows] = {}
    for split in splits or ("",):
        alone = tmp_path / "alone" / (split or "part")
        alone.mkdir(parents=True)
        for shard in range(draw.randrange(1, 3)):
            found = [
                (f"{number:03d}.{member}", draw.randbytes(draw.randrange(9)) if member != "cls" else b"%d" % number)
                for number in range(draw.randrange(1, 12))
                for member in ("id", *(one for one in members if draw.random() < 0.7))
            ]
            (alone / f"{split or 'part'}-{shard:06d}.tar").write_bytes(tar_of(found))
        told[split] = _side("read-tars", str(alone))
    whole = tmp_path / "whole"
    whole.mkdir()
    for path in sorted((tmp_path / "alone").rglob("*.tar")):
        path.rename(whole / path.name)
    for stray in draw.sample(("Thumbs.db", "README.md", "sizes.json"), draw.randrange(3)):
        (whole / stray).write_bytes(b"stray")
    if splits:
        with pytest.raises(DatasetError, match=f"holds the splits {', '.join(sorted(splits))}"):
            read_folder(whole)
    for split, theirs in told.items():
        ours = read_folder(f"{whole}?split={split}" if split else whole)
        names = sorted({name for row in theirs for name in row})
        # A member that a sample lacks is None.
        assert [{name: _plain(row.get(name)) for name in names} for row in ours] == [
            {name: row.get(name) for name in names} for row in theirs
        ]


@needs_webdataset
def test_what_is_between_members_is_left_out_as_webdataset_does(tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:

        def add(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> None:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, target, size
            archive.addfile(info, io.BytesIO(name.encode()[:size]))

        add("__meta__/about.json", size=3)
        add("__index__", size=3)
        add("d", tarfile.DIRTYPE)
        add("d/1.jpg", size=5)
        add("d/1", tarfile.DIRTYPE)
        add("README", size=6)
        add("d/1.cls", size=4)
        add("d/1.link", tarfile.SYMTYPE, "1.cls")
        add("d/1.hard", tarfile.LNKTYPE, "d/1.cls")
        add("d/1.fifo", tarfile.FIFOTYPE)
        add("d/1.Seg.PNG", size=5)
        add("d/2.jpg", size=5)
        add("e/" + "x" * 200 + ".jpg", size=7)
        add("e/" + "x" * 200 + ".txt", size=7)
        add("d/1.jpg", size=2)  # a key that comes again later is another sample
    (tmp_path / "tars").mkdir()
    (tmp_path / "tars" / "a.tar").write_bytes(file.getvalue())
    told = _side("read-tars", str(tmp_path / "tars"))
    assert [sorted(row) for row in told] == [
        ["__key__", "cls", "jpg", "seg.png"],
        ["__key__", "jpg"],
        ["__key__", "jpg", "txt"],
        ["__key__", "jpg"],
    ]
    assert _there(tmp_path / "tars") == told


@needs_webdataset
def test_two_members_of_one_name_are_refused_by_both(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of([("1.jpg", b"a"), ("1.JPG", b"b")]))
    with pytest.raises(AssertionError, match="duplicate"):
        _side("read-tars", str(tmp_path))
    with pytest.raises(DatasetError, match=r"a\.tar: record 0: must have each member once, 1\.JPG is there twice"):
        read_folder(tmp_path)


@needs_webdataset
def test_webdataset_reads_the_samples_that_convert_writes_of_its_own(tmp_path: Path) -> None:
    _side("write-tars", str(tmp_path / "tars"), str(tarfile.GNU_FORMAT), "below")
    convert(ConvertOptions(source=tmp_path / "tars", out=tmp_path / "out", to="wds", shards=4))
    told = _side("read-tars", str(tmp_path / "out"))
    assert _there(tmp_path / "out") == told
    before = _side("read-tars", str(tmp_path / "tars"))
    assert told != before  # the order is another one
    assert sorted(told, key=_key) == sorted(before, key=_key)


@needs_webdataset
def test_webdataset_decodes_the_members_that_convert_makes_of_columns(tmp_path: Path) -> None:
    source = tmp_path / "files"
    names = ("a/1.b.mp3", "a/" + "n" * 200 + ".bin", "ö ß/2.txt", "__meta__/3.json", "b.c/4.npy", "b.c/5")
    array = np.arange(6, dtype=np.float16).reshape(2, 3)
    contents = {".txt": "ü".encode(), ".json": b'{"a": [1]}', ".npy": _saved(array)}
    for name in names:
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents.get(path.suffix, b"bytes"))
    convert(ConvertOptions(source=source, out=tmp_path / "out", source_kind="files", to="wds"))
    told = {_key(row): {name: row[name] for name in row if name != "__key__"} for row in _decoded(tmp_path / "out")}
    assert told == {
        "a/1_b": {"mp3": _plain(b"bytes"), "cls": 1},
        "a/" + "n" * 200: {"bin": _plain(b"bytes"), "cls": 1},
        "ö ß/2": {"txt": "ü", "cls": 3},
        "_meta__/3": {"json": {"a": [1]}, "cls": 0},
        "b.c/4": {"npy": _plain(array), "cls": 2},
        "b.c/5": {"bin": _plain(b"bytes"), "cls": 2},
    }


def _key(row: dict[str, Any]) -> str:
    return str(row["__key__"])


def _decoded(folder: Path) -> Rows:
    return _side("decode-tars", str(folder))


def _saved(array: "np.ndarray[Any, Any]") -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


# ---- mosaicml-streaming ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("mds") / "plain"
    _side("write-mds", str(folder), "")
    return folder


@pytest.fixture(scope="module")
def mds_told(mds: Path) -> Rows:
    return _side("read-mds", str(mds))


@needs_streaming
def test_shards_of_mosaicml_give_the_samples_that_it_reads(mds: Path, mds_told: Rows) -> None:
    assert len(list(mds.glob("*.mds"))) > 3
    assert len(mds_told) == RECORDS
    for ours, theirs in zip(read_folder(mds, batch_size=1), mds_told, strict=True):
        # A column of plain numbers has NumPy's type here, and Python's there.
        python = {name: ours[name].item() for name in ("int", "num", "flt") if isinstance(ours[name], np.generic)}
        assert {name: _plain(value) for name, value in {**ours, **python}.items()} == theirs


@needs_streaming
def test_shards_of_mosaicml_come_in_batches_of_columns(mds: Path, mds_told: Rows) -> None:
    same = ["fixed", "s_int64", "s_float16", "text"]
    rows = _rows(mds, fields=[*same, "image/encoded"], shuffle=True)
    assert [{name: row[name] for name in same} for row in rows] == [
        {name: row[name] for name in same} for row in mds_told
    ]
    assert [row["image/encoded"] for row in rows] == [row["jpeg"] for row in mds_told]


@needs_streaming
@pytest.mark.parametrize("compression", ["gz:9", "bz2", "zstd:3", "br", "snappy"])
def test_compressed_shards_are_refused_and_converted(compression: str, tmp_path: Path) -> None:
    _side("write-streams", str(tmp_path / "packed"), compression)
    _side("write-streams", str(tmp_path / "plain"), "")
    with pytest.raises(
        DatasetError, match=rf"compressed with {compression}\. Convert them once: emlio convert DIR OUT$"
    ):
        read_folder(f"{tmp_path / 'packed'}?split=train")
    converted = tmp_path / "converted"
    convert(ConvertOptions(source=tmp_path / "packed" / "train", out=converted, to="wds", shuffle=False))
    rows = [
        {"u": json.loads(bytes(row["u.json"])), "text": bytes(row["text.txt"]).decode(), "x": bytes(row["x.bin"])}
        for row in read_folder(converted)
    ]
    told = _side("read-mds", str(tmp_path / "plain" / "train"))
    assert [{"u": _plain(np.uint64(row["u"])), "text": row["text"], "x": _plain(row["x"])} for row in rows] == told


@needs_streaming
def test_streams_in_folders_are_splits(tmp_path: Path) -> None:
    _side("write-streams", str(tmp_path), "")
    with pytest.raises(DatasetError, match="holds the splits train, val"):
        read_folder(tmp_path)
    told = {split: _side("read-mds", str(tmp_path / split)) for split in ("train", "val")}
    for split in told:
        assert [_plain_row(row) for row in read_folder(f"{tmp_path}?split={split}")] == told[split]
    assert [_plain_row(row) for row in read_folder(f"{tmp_path}?split=all")] == told["train"] + told["val"]


@needs_streaming
def test_a_column_that_cannot_be_read_is_named_and_others_can_be_chosen(mds: Path, tmp_path: Path) -> None:
    index = json.loads((mds / "index.json").read_text())
    for shard in index["shards"]:
        shard["column_encodings"][shard["column_names"].index("bytes")] = "pkl"
    folder = tmp_path / "pickled"
    folder.mkdir()
    for path in mds.glob("*.mds"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=r"column 'bytes' is encoded as 'pkl'.*choose other columns with fields="):
        read_folder(folder)
    assert len(read_folder(folder, fields=["text", "int"])) == RECORDS


# ---- Hugging Face ---------------------------------------------------------------------------------------------------


@needs_datasets
@pytest.mark.parametrize("seed", range(4))
def test_splits_of_hugging_face_are_those_that_it_loads(seed: int, tmp_path: Path) -> None:
    _side("write-datasets", str(tmp_path), str(seed))
    splits = sorted(json.loads((tmp_path / "saved" / "dataset_dict.json").read_text())["splits"])
    with pytest.raises(DatasetError, match=f"holds the splits {', '.join(splits)}"):
        read_folder(tmp_path / "saved")
    for split in splits:
        told = _side("read-datasets", str(tmp_path), split)
        # Only folders can have splits of any name.
        hub = f"{tmp_path / 'hub'}?" + (f"split={split}" if split not in ("one", "two") else f"files=data/{split}-*")
        for address in (f"{tmp_path / 'saved'}?split={split}", hub):
            rows = read_folder(address)
            values = [{name: _as_python(value) for name, value in row.items()} for row in rows]
            assert [_plain_row(row) for row in values] == told


def _as_python(value: Any) -> Any:
    """A value of a table as Hugging Face's datasets gives it."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value
