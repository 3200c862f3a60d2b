"""Files whose bytes changed and whose times were set back, before anybody has read their records."""

import os
from pathlib import Path

import numpy as np
import pytest

from emlio.errors import CorruptRecordError, DatasetError
from emlio.index.dataset import Dataset
from emlio.index.opening import DatasetPath, open_dataset
from emlio.store.folder import Folder
from emlio_testing.format_datasets import FORMS
from emlio_testing.format_files import read_folder
from emlio_testing.reading import added_checksums, faults_in, page_cache

_IN_RANGES = ("jsonl", "tar", "mds", "megatron", "npy-rows")


pytestmark = pytest.mark.usefixtures("own_cache")


def _set_back(path: Path, data: bytes) -> None:
    before = path.stat()
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def _opened(name: str, folder: Path) -> Dataset:
    path = DatasetPath.parse(f"{folder}{FORMS[name].options}")
    return open_dataset("x", path.folder, options=path.options)


def _look(dataset: Dataset) -> None:
    """Compare all files by name, as a daemon does from time to time."""
    shards = page_cache(dataset)
    try:
        shards.check(np.arange(len(dataset.files)), 10**18)
    finally:
        shards.close()


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    _set_back(path, bytes(data))


@pytest.mark.parametrize("name", _IN_RANGES)
def test_bytes_changed_before_the_first_reading_are_an_error_while_a_dataset_is_open(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    FORMS[name].make(folder, 20)
    with _opened(name, folder) as dataset:
        assert dataset.checksums is not None
        _look(dataset)
        file = dataset.shards[0].file_of(0)
        _flip(dataset.folder_store.path(file), int(dataset.shards[0].ends[0]) - 1)
        with pytest.raises(DatasetError, match="changed while it was served: its content had digest"):
            _look(dataset)
        with pytest.raises(DatasetError, match="changed while it was served: its content had digest"):
            added_checksums(dataset, 0)
        assert dataset.checksums.missing == dataset.records
        digests = [shard.digest for shard in dataset.shards]
    with _opened(name, folder) as dataset:
        assert [shard.digest for shard in dataset.shards] != digests
        _look(dataset)


@pytest.mark.parametrize("name", [*_IN_RANGES, "files", "npy", "npz-inflated", "parquet", "arrow"])
def test_a_chmod_changes_nothing(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    FORMS[name].make(folder, 20)
    with _opened(name, folder) as dataset:
        digests = [shard.digest for shard in dataset.shards]
        for path in folder.rglob("*"):
            path.chmod(path.stat().st_mode ^ 0o010)
        _look(dataset)
        for number in range(len(dataset.shards)):
            assert added_checksums(dataset, number)
    with _opened(name, folder) as dataset:
        assert [shard.digest for shard in dataset.shards] == digests
        assert dataset.checksums is not None
        assert dataset.checksums.missing == 0


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number:02d}.x").write_bytes(b"%02d" % number * 50)
    return folder


def test_a_file_that_is_a_sample_of_its_shard_is_an_error_once_and_served_after(files: Path) -> None:
    with open_dataset("files", files):
        pass
    _set_back(files / "19.x", b"77" * 50)
    with pytest.raises(DatasetError, match=r"19\.x: changed while it was served: its content had digest"):
        read_folder(files)
    assert bytes(read_folder(files)[19]["data"][:2]) == b"77"


def test_a_file_that_nothing_is_known_of_is_taken_as_it_is_first_read(files: Path) -> None:
    with open_dataset("files", files):
        pass
    _set_back(files / "03.x", b"77" * 50)
    assert bytes(read_folder(files)[3]["data"][:2]) == b"77"
    _set_back(files / "03.x", b"78" * 50)
    with pytest.raises(CorruptRecordError, match="CRC32C"):
        read_folder(files)
    with open_dataset("files", files) as dataset:
        assert [error.record for error in faults_in(dataset, 0)] == [3]


def test_a_file_is_opened_once_for_all_of_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FORMS["jsonl"].make(tmp_path / "data", 20)
    opened: list[str] = []
    before = Folder.open_status

    def counted(folder: Folder, name: str) -> tuple[int, os.stat_result]:
        opened.append(name)
        return before(folder, name)

    with open_dataset("x", tmp_path / "data") as dataset:
        monkeypatch.setattr(Folder, "open_status", counted)
        monkeypatch.setattr(Folder, "open_indexed", lambda *_, **__: None)  # so that each is opened by itself
        assert sum(added_checksums(dataset, number) for number in range(len(dataset.shards))) == 20
        names = [shard.name for shard in dataset.shards]
        assert opened == names
        _set_back(dataset.folder_store.path(0), bytes(dataset.folder_store.size_bytes(0)))
        with pytest.raises(DatasetError, match="changed while it was served: its content had digest"):
            faults_in(dataset, 0)


def test_a_disk_that_fails_under_a_table_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FORMS["parquet"].make(tmp_path / "data", 20)

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with open_dataset("x", tmp_path / "data") as dataset:
        path = dataset.folder_store.path(0)
        monkeypatch.setattr("emlio.reading.page_cache.os.preadv", fail)
        with pytest.raises(DatasetError, match=f"{path}.*Input/output error"):
            added_checksums(dataset, 0)
