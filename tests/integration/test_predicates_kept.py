"""Columns kept for predicates: used for the very files that they were made from, whatever was rewritten in them.

Covers: labels corrected in place in every format, locally, at a daemon, in a bucket; labels that change while they are read.
Does not cover: what predicates mean (test_loader_predicates).
"""

import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader, Weights
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import CorruptRecordError, DatasetError, EmlioError
from emlio.example.encode import encode_example
from emlio.index.dataset import Dataset
from emlio.index.opening import DatasetPath, open_dataset
from emlio.reading.columns import find_matches
from emlio.tfrecord import frame
from emlio_testing.format_files import tar_of
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.object_server import ACCESS_KEY, SECRET_KEY, ObjectServer, object_server
from emlio_testing.processes import settles

_arrow: Any = import_module("pyarrow")  # which has no types
_ipc: Any = import_module("pyarrow.ipc")
_parquet: Any = import_module("pyarrow.parquet")

_RECORDS = 1000
_PAD = "x" * 150
_BEFORE = [number % 2 for number in range(_RECORDS)]
_AFTER = [1 - label if 400 < number < 460 else label for number, label in enumerate(_BEFORE)]
"""Corrected where no sample of the file is."""

Write = Callable[[Sequence[int]], dict[str, bytes]]


def _saved(save: Callable[[Any], object]) -> bytes:
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def _table(labels: Sequence[int]) -> Any:
    return _arrow.table({"y": list(labels), "pad": [_PAD] * len(labels)})


def _arrow_file(labels: Sequence[int]) -> bytes:
    table = _table(labels)

    def save(file: Any) -> None:
        with _ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=100)

    return _saved(save)


def _parquet_file(labels: Sequence[int]) -> bytes:
    plain: dict[str, Any] = {"compression": None, "use_dictionary": False, "write_statistics": False}
    return _saved(lambda file: _parquet.write_table(_table(labels), file, row_group_size=100, **plain))


def _mds(labels: Sequence[int]) -> dict[str, bytes]:
    samples = [len(_PAD).to_bytes(4, "little") + int(label).to_bytes(8, "little") + _PAD.encode() for label in labels]
    begin = 4 * (len(labels) + 2)
    bounds = np.concatenate([[begin], begin + np.cumsum([len(one) for one in samples])]).astype("<u4")
    data = len(labels).to_bytes(4, "little") + bounds.tobytes() + b"".join(samples)
    shard: dict[str, Any] = {
        "column_encodings": ["int64", "str"],
        "column_names": ["y", "pad"],
        "column_sizes": [8, None],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "raw_data": {"basename": "shard.00000.mds", "bytes": len(data), "hashes": {}},
        "samples": len(labels),
        "size_limit": 1 << 26,
        "version": 2,
        "zip_data": None,
    }
    return {"index.json": json.dumps({"shards": [shard], "version": 2}).encode(), "shard.00000.mds": data}


_WRITE: dict[str, tuple[Write, str, str]] = {
    "jsonl": (
        lambda labels: {"a.jsonl": "".join(json.dumps({"y": y, "pad": _PAD}) + "\n" for y in labels).encode()},
        "",
        "y == 1",
    ),
    "tar": (
        lambda labels: {
            "a.tar": tar_of(
                [
                    member
                    for number, label in enumerate(labels)
                    for member in ((f"{number:04d}.cls", b"%d" % label), (f"{number:04d}.bin", _PAD.encode()))
                ]
            )
        },
        "",
        "label == 1",
    ),
    "parquet": (lambda labels: {"a.parquet": _parquet_file(labels)}, "", "y == 1"),
    "arrow": (lambda labels: {"a.arrow": _arrow_file(labels)}, "", "y == 1"),
    "mds": (_mds, "", "y == 1"),
    "tfrecord": (
        lambda labels: {
            "a.tfrecord": b"".join(frame(encode_example({"y": [y], "pad": [_PAD.encode()]})) for y in labels)
        },
        "",
        "y == 1",
    ),
    "npz": (
        lambda labels: {
            f"{number:04d}.npz": _saved(lambda file, y=y: np.savez(file, y=y)) for number, y in enumerate(labels)
        },
        "",
        "y == 1",
    ),
    "npy": (
        lambda labels: {
            f"{number:04d}.npy": _saved(lambda file, y=y: np.save(file, y)) for number, y in enumerate(labels)
        },
        "",
        "array == 1",
    ),
    "npy-rows": (
        lambda labels: {"a.npy": _saved(lambda file: np.save(file, np.repeat(labels, 9)[::9].astype("i8")))},
        "?format=npy-rows",
        "row == 1",
    ),
}
"""For each format what writes files with these labels, its options, and a predicate for label 1."""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _put(folder: Path, files: dict[str, bytes], *, secretly: bool = False) -> None:
    """Write files, over those that are there."""
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        path = folder / name
        before = path.stat() if path.exists() else None
        if before is not None and path.read_bytes() == data:
            continue
        with path.open("r+b" if before is not None else "wb") as file:
            file.write(data)
        if before is not None:
            assert path.stat().st_size == before.st_size
            # A clock that has not ticked since must not hide the change.
            mtime_ns = before.st_mtime_ns + (0 if secretly else 1_000_000)
            os.utime(path, ns=(before.st_atime_ns, mtime_ns))


@contextmanager
def _opened(text: str) -> Iterator[Dataset]:
    path = DatasetPath.parse(text)
    with open_dataset("data", path.directory, options=path.options) as dataset:
        yield dataset


def _found(dataset: Dataset, predicate: str, **options: Any) -> list[int]:
    bits = find_matches(dataset, predicate, **options).bits
    return np.flatnonzero(np.unpackbits(bits, count=_RECORDS, bitorder="little")).tolist()


def _ones(labels: Sequence[int]) -> list[int]:
    return [number for number, label in enumerate(labels) if label == 1]


@pytest.mark.parametrize("name", _WRITE)
def test_labels_rewritten_in_place_are_read_again(tmp_path: Path, name: str) -> None:
    write, options, predicate = _WRITE[name]
    folder = tmp_path / "data"
    address = f"{folder}{options}"
    _put(folder, write(_BEFORE))
    with _opened(address) as dataset:
        assert _found(dataset, predicate) == _ones(_BEFORE)
        digests = [shard.digest for shard in dataset.shards]
        _put(folder, write(_AFTER))
        with pytest.raises(DatasetError, match="changed while"):
            _found(dataset, predicate)
    with _opened(address) as dataset:
        assert _found(dataset, predicate) == _ones(_AFTER)
        if name not in ("tfrecord", "npy-rows"):  # of which the digest is of all checksums, or of all bytes
            assert [shard.digest for shard in dataset.shards] == digests, "the change is seen by no digest"
    for secretly in (False, True):
        _put(folder, write(_BEFORE if secretly else _AFTER), secretly=secretly)
    with _opened(address) as dataset:
        try:
            assert _found(dataset, predicate) == _ones(_BEFORE)
        except CorruptRecordError as error:
            assert "as first read" in str(error)  # noqa: PT017  # either is right, and nothing else is


def test_a_kept_column_is_read_once_for_files_that_are_the_same(tmp_path: Path) -> None:
    write, _, predicate = _WRITE["jsonl"]
    _put(tmp_path / "data", write(_BEFORE))
    for _ in range(2):
        with _opened(str(tmp_path / "data")) as dataset:
            assert _found(dataset, predicate) == _ones(_BEFORE)
        assert len(list((tmp_path / "cache").rglob("*.column"))) == 1


@pytest.mark.parametrize("name", ["jsonl", "tfrecord", "parquet", "npz"])
def test_labels_that_change_while_they_are_read_give_no_mixture(tmp_path: Path, name: str) -> None:
    write, _, predicate = _WRITE[name]
    folder = tmp_path / "data"
    _put(folder, write(_BEFORE))

    class Corrected(Event):
        asked = 0

        def is_set(self) -> bool:
            self.asked += 1
            if self.asked == 700:
                _put(folder, write(_AFTER))
            return False

    with _opened(str(folder)) as dataset, pytest.raises(DatasetError, match="changed while"):
        _found(dataset, predicate, ending=Corrected())
    with _opened(str(folder)) as dataset:
        assert _found(dataset, predicate) == _ones(_AFTER)


def _labels(address: str, column: str, **options: Any) -> list[int]:
    arguments = loader_arguments(batch_size=100, to="numpy", epochs=1, timeout="20s", seed=1, ids=True, **options)
    with EmlioLoader(address, **arguments) as loader:
        return [int(label) for batch in loader for label in batch[column]]


def _is_answered(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except EmlioError as error:
        assert "changed while" in str(error)  # noqa: PT017  # before the daemon has reloaded
        return False
    return True


@pytest.mark.parametrize("name", ["jsonl", "tfrecord", "parquet", "mds"])
def test_a_daemon_answers_by_the_labels_that_it_serves(tmp_path: Path, name: str) -> None:
    write, _, predicate = _WRITE[name]
    folder = tmp_path / "data"
    _put(folder, write(_BEFORE))
    config = DaemonConfig(
        data=(DatasetSource(name="data", directory=folder),),
        bind=Endpoint(host="127.0.0.1", port=0),
        cache_dir=tmp_path / "daemon-cache",
        memory=1 << 24,
    )

    def wanted(daemon: Daemon) -> tuple[int, list[int]]:
        address = f"{daemon.endpoint.replace('tcp', 'emlio')}/data"
        labels = _labels(address, "y", subset=predicate)
        drawn = _labels(address, "y", weights=Weights({0: 0, 1: 1}, column="y"), samples=200)
        return len(labels), sorted({*labels, *drawn})

    with Daemon(config) as daemon:
        for _ in range(2):
            assert wanted(daemon) == (sum(_BEFORE), [1])
        _put(folder, write(_AFTER))
        with pytest.raises(EmlioError, match="changed while"):
            wanted(daemon)
        daemon.reload()
        assert settles(lambda: _is_answered(lambda: wanted(daemon)), 20)
        assert wanted(daemon) == (sum(_AFTER), [1])
        _put(folder, write(_BEFORE))
    with Daemon(config) as daemon:
        assert wanted(daemon) == (sum(_BEFORE), [1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with object_server(tmp_path_factory.mktemp("objects")) as running:
        running.put("warm", b"x")  # obstore's threads and their descriptors are this process's until its end
        yield running


@pytest.mark.timeout(600)  # the server may have to be built first
@pytest.mark.parametrize("name", ["jsonl", "parquet", "tar"])
def test_labels_rewritten_in_a_bucket_are_read_again(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    write, _, predicate = _WRITE[name]

    def put(labels: Sequence[int]) -> None:
        for file, data in write(labels).items():
            server.put(f"{name}/{file}", data)

    put(_BEFORE)
    with _opened(server.address(name)) as dataset:
        for _ in range(2):
            assert _found(dataset, predicate) == _ones(_BEFORE)
        put(_AFTER)
        with pytest.raises(DatasetError, match="an object must not change while it is served"):
            _found(dataset, predicate)
    with _opened(server.address(name)) as dataset:
        assert _found(dataset, predicate) == _ones(_AFTER)
