"""Folders written by the libraries that define a format, compared record by record with what these libraries read.

Covers: webdataset (all forms of tars, long names, what lies between members, tars that are written here),
mosaicml-streaming (all encodings but pickles, several shards, compressed shards). Does not cover: formats whose
definition needs no library of its own (tests/integration/test_formats_read.py), files that are damaged.
"""

import importlib.util
import io
import json
import os
import subprocess
import sys
import tarfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.prepare.convert import ConvertOptions, convert
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


def _rows(folder: Path, **options: Any) -> Rows:
    rows = read_folder(folder, **options)
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


# ---- webdataset -----------------------------------------------------------------------------------------------------


@needs_webdataset
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tars_of_webdataset_give_the_samples_that_it_reads(form: int, tmp_path: Path) -> None:
    _side("write-tars", str(tmp_path / "tars"), str(form))
    told = _side("read-tars", str(tmp_path / "tars"))
    # Samples have different members, so they cannot be columns together: one by one.
    assert _rows(tmp_path / "tars", batch_size=1) == told
    assert len(told) == RECORDS


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
    assert _rows(tmp_path / "tars", batch_size=1) == told


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
    assert _rows(tmp_path / "out", batch_size=1) == told
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
def test_compressed_shards_are_refused_with_the_command_that_expands_them(tmp_path: Path) -> None:
    folder = tmp_path / "packed"
    _side("write-mds", str(folder), "zstd")
    with pytest.raises(DatasetError, match=r"shards must lie uncompressed.*for f in \*\.zstd; do zstd -d -c"):
        read_folder(folder)


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
