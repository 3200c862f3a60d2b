import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader, Writer
from emlio.cli import main as emlio
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import DatasetError
from emlio.index.opening import open_dataset
from emlio_testing.loader_arguments import loader_arguments

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed: scripts/test --interop"
    ),
]

SIDE = Path(__file__).with_name("tensorflow_side.py")
FILES, RECORDS = 3, 100
FEATURES: dict[str, tuple[str, int | None]] = {
    "bytes/fixed": ("bytes", 1),
    "bytes/sized": ("bytes", 1),
    "bytes/text": ("bytes", 1),
    "float/box": ("float", 4),
    "float/many": ("float", None),
    "float/weight": ("float", 1),
    "int/ids": ("int64", 3),
    "int/label": ("int64", 1),
    "int/many": ("int64", None),
}
IMAGES: dict[str, tuple[str, int | None]] = {
    "image/encoded": ("bytes", 1),
    "image/class/label": ("int64", 1),
    "image/class/text": ("bytes", 1),
    "image/filename": ("bytes", 1),
    "image/height": ("int64", 1),
    "image/width": ("int64", 1),
}

Rows = list[dict[str, Any]]


def _tensorflow(*words: str) -> str:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, str(SIDE), *words], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def _read_by_tensorflow(folder: Path, features: dict[str, tuple[str, int | None]]) -> Rows:
    return [json.loads(line) for line in _tensorflow("read", str(folder), json.dumps(features)).splitlines()]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards written by TensorFlow."""
    folder: Path = tmp_path_factory.mktemp("theirs") / "plain"
    _tensorflow("write", str(folder), str(FILES), str(RECORDS), "")
    return folder


@pytest.fixture(scope="module")
def told(theirs: Path) -> Rows:
    """What TensorFlow itself reads from them."""
    rows = _read_by_tensorflow(theirs, FEATURES)
    assert len(rows) == RECORDS
    return rows


@contextmanager
def _loader(folder: Path, cache: Path, **options: Any) -> Iterator[EmlioLoader]:
    source = DatasetSource(name="data", directory=folder)
    config = DaemonConfig(data=(source,), bind=Endpoint(host="127.0.0.1", port=0), cache_dir=cache)
    with Daemon(config) as daemon:
        address = daemon.endpoint.replace("tcp://", "emlio://") + "/data"
        with EmlioLoader(
            address, **loader_arguments(batch_size=32, to="numpy", ids=True, timeout="20s", **options)
        ) as loader:
            yield loader


def _plain(value: Any) -> list[Any]:
    """A value of ours as the other side writes it."""
    if isinstance(value, (bytes, memoryview)):
        return [bytes(value).hex()]
    return [item.hex() if isinstance(item, float) else item for item in np.asarray(value).reshape(-1).tolist()]


def _received(folder: Path, cache: Path, fields: list[str], shuffle: bool = False) -> dict[int, dict[str, list[Any]]]:
    """What one epoch brings, by record id."""
    found: dict[int, dict[str, list[Any]]] = {}
    with _loader(folder, cache, shuffle=shuffle, fields=fields) as loader:
        for batch in loader:
            for place, number in enumerate(batch["__id__"].tolist()):
                found[number] = {name: _plain(batch[name][place]) for name in fields}
    return found


@pytest.mark.parametrize("shuffle", [False, True])
def test_records_written_by_tensorflow_arrive_bit_for_bit(
    theirs: Path, told: Rows, tmp_path: Path, shuffle: bool
) -> None:
    digests: dict[int, str] = {}
    with _loader(theirs, tmp_path, shuffle=shuffle, raw=True) as loader:
        for batch in loader:
            for number, record in zip(batch["__id__"].tolist(), batch["record"], strict=True):
                digests[number] = hashlib.sha256(record).hexdigest()
    assert [digests[number] for number in range(RECORDS)] == [row["digest"] for row in told]
    assert len(set(digests.values())) == RECORDS


def test_features_written_by_tensorflow_have_the_values_it_reads(theirs: Path, told: Rows, tmp_path: Path) -> None:
    received = _received(theirs, tmp_path, sorted(FEATURES))
    assert [received[number] for number in range(RECORDS)] == [row["features"] for row in told]


def test_without_named_fields_all_features_come(theirs: Path, tmp_path: Path) -> None:
    with _loader(theirs, tmp_path, shuffle=False) as loader:
        batch = next(iter(loader))
    assert sorted(batch) == sorted([*FEATURES, "__id__"])
    assert batch["float/box"].shape == (32, 4)
    assert batch["float/box"].dtype == np.float32
    assert batch["int/ids"].dtype == np.int64


def test_scanning_finds_every_record_of_every_file(theirs: Path, tmp_path: Path) -> None:
    with open_dataset("data", theirs, tmp_path) as dataset:
        assert [shard.records for shard in dataset.shards] == [33, 33, 34]
        ends = [int(shard.ends[-1]) for shard in dataset.shards]
        assert ends == [(theirs / shard.name).stat().st_size for shard in dataset.shards]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compressed_files_are_refused_with_the_way_out_and_convert_to_the_same_records(
    compression: str, told: Rows, tmp_path: Path
) -> None:
    folder, out = tmp_path / "packed", tmp_path / "unpacked"
    _tensorflow("write", str(folder), str(FILES), str(RECORDS), compression)
    with pytest.raises(DatasetError, match=r"(?is)compressed.*emlio convert"):
        open_dataset("data", folder, tmp_path / "cache").close()
    # Under names that do not tell: the content does.
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    for path in folder.iterdir():
        (renamed / path.stem).write_bytes(path.read_bytes())
    with pytest.raises(DatasetError, match=rf"(?is){compression}.*emlio convert"):
        open_dataset("data", renamed, tmp_path / "cache").close()
    assert emlio(["convert", str(folder), str(out), "--from", "tfrecord", "--no-shuffle"]) == 0
    assert _read_by_tensorflow(out, FEATURES) == told


def test_convert_copies_plain_files_of_tensorflow_record_by_record(theirs: Path, told: Rows, tmp_path: Path) -> None:
    out = tmp_path / "copy"
    assert emlio(["convert", str(theirs), str(out), "--shards", "2", "--seed", "3"]) == 0
    copied = _read_by_tensorflow(out, {})
    assert sorted(row["digest"] for row in copied) == sorted(row["digest"] for row in told)
    assert [row["digest"] for row in copied] != [row["digest"] for row in told]


def test_tensorflow_reads_synthetic_images_as_we_do(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    assert emlio(["synth", str(folder), "--records", "40", "--image-size", "64x48", "--shard-size", "20kB"]) == 0
    rows = _read_by_tensorflow(folder, IMAGES)
    received = _received(folder, tmp_path, sorted(IMAGES), shuffle=True)
    assert len(rows) == 40
    assert [received[number] for number in range(40)] == [row["features"] for row in rows]
    assert all(row["features"]["image/width"] == [64] for row in rows)


def test_tensorflow_reads_synthetic_examples_as_we_do(tmp_path: Path) -> None:
    folder = tmp_path / "examples"
    features: dict[str, tuple[str, int | None]] = {"image/encoded": ("bytes", 1), "image/class/label": ("int64", 1)}
    made = ["synth", str(folder), "--kind", "example", "--records", "500", "--spread", "0.9", "--shard-size", "200kB"]
    assert emlio(made) == 0
    rows = _read_by_tensorflow(folder, features)
    received = _received(folder, tmp_path, sorted(features))
    assert [received[number] for number in range(500)] == [row["features"] for row in rows]
    numbers = [int.from_bytes(bytes.fromhex(row["features"]["image/encoded"][0])[:8], "little") for row in rows]
    assert numbers == list(range(500))


def test_tensorflow_reads_what_the_writer_wrote_bit_for_bit(tmp_path: Path) -> None:
    columns: list[dict[str, Any]] = [
        {
            "bytes": bytes([number]) * number,
            "text": f"Größe {number}",
            "number": -number,
            "real": number / 3,
            "tokens": np.arange(number % 5 + 1, dtype=np.int32),
            "names": [f"n{one}" for one in range(number % 3 + 1)],
            "matrix": np.full((2, 3), number, np.float64),
        }
        for number in range(50)
    ]
    with Writer(tmp_path / "data", shard_size="2kB") as writer:
        for record in columns:
            writer.write(record)
    features: dict[str, tuple[str, int | None]] = {
        "bytes": ("bytes", 1),
        "text": ("bytes", 1),
        "number": ("int64", 1),
        "real": ("float", 1),
        "tokens": ("int64", None),
        "names": ("bytes", None),
        "matrix/data": ("bytes", 1),
        "matrix/dtype": ("bytes", 1),
        "matrix/shape": ("int64", 2),
    }
    rows = [row["features"] for row in _read_by_tensorflow(tmp_path / "data", features)]
    assert rows == [
        {
            "bytes": [record["bytes"].hex()],
            "text": [record["text"].encode().hex()],
            "number": [record["number"]],
            "real": [float(np.float32(record["real"])).hex()],
            "tokens": record["tokens"].tolist(),
            "names": [name.encode().hex() for name in record["names"]],
            "matrix/data": [record["matrix"].tobytes().hex()],
            "matrix/dtype": [b"<f8".hex()],
            "matrix/shape": [2, 3],
        }
        for record in columns
    ]


def test_tensorflow_reads_converted_image_folders(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow draws the pictures of this test")
    source, out = tmp_path / "folder", tmp_path / "out"
    written: dict[str, tuple[str, int]] = {}
    for label, name in enumerate(("ant", "bee")):
        (source / name).mkdir(parents=True)
        for number in range(5):
            path = source / name / f"{name}_{number}.jpg"
            image.new("RGB", (24 + number, 16), (number * 40, label * 200, 9)).save(path)
            written[path.read_bytes().hex()] = (name.encode().hex(), label)
    assert emlio(["convert", str(source), str(out), "--shards", "2"]) == 0
    rows = [row["features"] for row in _read_by_tensorflow(out, IMAGES)]
    assert {
        row["image/encoded"][0]: (row["image/class/text"][0], row["image/class/label"][0]) for row in rows
    } == written
