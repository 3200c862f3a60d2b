"""Opening datasets: indexes kept and trusted, or not."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio.errors import ClosedError, CorruptRecordError, DatasetError
from emlio.formats.tfrecord import tfrecords as tfrecords_module
from emlio.formats.tfrecord.scan import Framing
from emlio.index.cache_folder import default_cache_dir
from emlio.index.dataset import Dataset
from emlio.index.opening import open_dataset
from emlio.index.parallel import for_each_shard
from emlio_testing.datasets import make_dataset, read_tfrecord, write_tfrecord

NAME = "train-00001-of-00003.tfrecord"


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "data", records=30, shards=3, mapped=False)
    return tmp_path / "data"


@pytest.fixture
def mapped(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "data", records=30, shards=3)
    return tmp_path / "data"


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.rglob("*") if path.is_file()}


def read_all(dataset: Dataset) -> Iterator[bytes]:
    for path in dataset.shard_paths:
        yield from read_tfrecord(path)


@pytest.mark.parametrize("is_mapped", [True, False])
def test_a_dataset_is_its_shards_in_order_with_all_records(tmp_path: Path, is_mapped: bool) -> None:
    made = make_dataset(tmp_path, records=100, shards=7, mapped=is_mapped)
    with open_dataset("d", tmp_path) as dataset:
        assert [shard.name for shard in dataset.shards] == [
            f"train-{place:05d}-of-00007.tfrecord" for place in range(7)
        ]
        assert dataset.missing == ()
        assert dataset.records == 100
        assert dataset.size_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.tfrecord"))
        assert list(read_all(dataset)) == made
        assert [shard.files for shard in dataset.shards] == [1 + is_mapped] * 7
        for shard, entry in zip(dataset.shards, dataset.entries, strict=True):
            facts = (shard.name, shard.records, shard.size_bytes, shard.digest)
            assert (entry.name, entry.records, entry.size_bytes, entry.digest) == facts


def test_mapped_and_foreign_files_of_one_content_have_one_identity(tmp_path: Path) -> None:
    for name, is_mapped in (("a", True), ("b", False)):
        make_dataset(tmp_path / name, records=20, shards=2, mapped=is_mapped)
    with open_dataset("a", tmp_path / "a") as a, open_dataset("b", tmp_path / "b") as b:
        assert a.entries == b.entries


def test_a_closed_dataset_says_so(foreign: Path) -> None:
    dataset = open_dataset("d", foreign)
    dataset.close()
    dataset.close()
    with pytest.raises(ClosedError, match="dataset 'd' is closed"):
        _ = dataset.shards


def indexed(caplog: pytest.LogCaptureFixture, directory: Path, **options: Any) -> list[str]:
    """The shards that an opening looks for records in."""
    found = list[str]()
    before = tfrecords_module.scan_file

    def scanned(*arguments: Any, **named: Any) -> Framing:
        found.append(arguments[3])
        return before(*arguments, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tfrecords_module, "scan_file", scanned)
        open_dataset("d", directory, **options).close()
    return sorted(found)


NAMES = [f"train-{number:05d}-of-00003.tfrecord" for number in range(3)]


def test_the_first_opening_keeps_an_index_and_the_second_uses_it(
    foreign: Path, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = files(foreign)
    assert indexed(caplog, foreign) == NAMES
    assert files(foreign) == before
    assert "bounds.npy" in files(own_cache)
    assert indexed(caplog, foreign) == []
    assert indexed(caplog, foreign, rebuild=True) == NAMES


def test_a_shard_that_came_or_changed_is_looked_into_and_others_are_not(
    foreign: Path, caplog: pytest.LogCaptureFixture
) -> None:
    indexed(caplog, foreign)
    write_tfrecord(foreign / NAME, [b"new"] * 4)
    assert indexed(caplog, foreign) == [NAME]
    write_tfrecord(foreign / "extra.tfrecord", [b"more"])
    assert indexed(caplog, foreign) == ["extra.tfrecord"]


def test_a_mapped_shard_of_another_size_is_refused_with_both_sizes(mapped: Path) -> None:
    size = (mapped / NAME).stat().st_size
    write_tfrecord(mapped / NAME, [b"new"] * 4)
    expected = f"has 76 bytes, {size} in its mapping.*emlio index --force --mapping"
    with pytest.raises(DatasetError, match=expected):
        open_dataset("d", mapped)


def test_a_mapped_shard_of_another_content_is_refused(mapped: Path) -> None:
    with open_dataset("d", mapped) as dataset:
        sizes = np.diff(dataset.shards[1].offsets) - 16
        status = dataset.shard_paths[1].stat()
    write_tfrecord(mapped / NAME, [b"n" * int(size) for size in sizes])
    os.utime(mapped / NAME, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(DatasetError, match=r"has digest [0-9a-f]{32}, [0-9a-f]{32} in its mapping"):
        open_dataset("d", mapped)


def test_a_mapped_dataset_that_was_copied_is_accepted(mapped: Path) -> None:
    for path in mapped.iterdir():
        os.utime(path, ns=(1, 1))
    with open_dataset("d", mapped) as dataset:
        assert dataset.records == 30
        assert int(dataset.folder_store.table.mtimes_ns[0]) == 1


def test_missing_shards_are_told_not_refused(mapped: Path) -> None:
    (mapped / NAME).unlink()
    with open_dataset("d", mapped) as dataset:
        assert dataset.missing == (NAME,)
        assert len(dataset.entries) == 2


def test_shards_without_any_record_are_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").touch()
    with pytest.raises(DatasetError, match=r"there are none in its 1 shard, such as a\.tfrecord of 0 bytes"):
        open_dataset("d", tmp_path)
    write_tfrecord(tmp_path / "b.tfrecord", [b"one"])
    with open_dataset("d", tmp_path) as dataset:
        assert [entry.records for entry in dataset.entries] == [0, 1]


def test_the_first_bad_shard_by_name_is_reported(foreign: Path) -> None:
    for name in (NAME, "train-00002-of-00003.tfrecord"):
        (foreign / name).write_bytes(b"bad")
    with pytest.raises(CorruptRecordError, match=NAME):
        open_dataset("d", foreign)


def test_an_open_file_is_compared_with_the_one_that_was_indexed(foreign: Path) -> None:
    with open_dataset("d", foreign) as dataset, (foreign / NAME).open("r+b") as file:
        shard, files = dataset.shards[1], dataset.folder_store.table
        files.check_unchanged(1, os.fstat(file.fileno()))
        os.utime(file.fileno(), ns=(5, 5))
        with pytest.raises(
            DatasetError, match=f"{NAME}: changed while it was served.*mtime {files.mtimes_ns[1]} ns, now .*mtime 5"
        ):
            files.check_unchanged(1, os.fstat(file.fileno()))
        os.truncate(file.fileno(), 10)
        with pytest.raises(DatasetError, match=f"had {shard.size_bytes} bytes .*now 10 bytes"):
            files.check_unchanged(1, os.fstat(file.fileno()))


def test_a_given_cache_folder_keeps_the_shards_folder_as_it_is(foreign: Path, tmp_path: Path, own_cache: Path) -> None:
    before = files(foreign)
    for _ in range(2):
        open_dataset("d", foreign, tmp_path / "indexes").close()
    assert files(foreign) == before
    assert "bounds.npy" in files(tmp_path / "indexes")
    assert files(own_cache) == set()


def test_datasets_of_equal_names_do_not_share_a_cache_folder(tmp_path: Path) -> None:
    for folder, records in (("a", 3), ("b", 6)):
        make_dataset(tmp_path / folder / "data", records=records, shards=3, mapped=False)
        open_dataset("d", tmp_path / folder / "data", tmp_path / "indexes").close()
    for folder, records in (("a", 3), ("b", 6)):
        with open_dataset("d", tmp_path / folder / "data", tmp_path / "indexes") as dataset:
            assert dataset.records == records


def test_where_nothing_can_be_written_the_dataset_opens_all_the_same(
    foreign: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with open_dataset("d", foreign, tmp_path / "file" / "folder") as dataset:
        assert dataset.records == 30
    (said,) = caplog.messages
    assert said.startswith("dataset d: its index cannot be saved, so every start builds it again: [Errno")
    assert str(tmp_path / "file") in said


def test_the_user_s_cache_folder_follows_the_xdg_rules() -> None:
    assert default_cache_dir({"XDG_CACHE_HOME": "/c"}) == Path("/c/emlio")
    home = Path(os.path.expanduser("~/.cache/emlio"))
    assert default_cache_dir({"XDG_CACHE_HOME": "relative"}) == home
    assert default_cache_dir({}) == home


def test_a_mapped_index_takes_no_descriptor(tmp_path: Path) -> None:
    make_dataset(tmp_path, records=131_072 + 1000, shards=1, payload=8)  # large enough for a mapped index
    before = os.listdir("/proc/self/fd")
    with open_dataset("d", tmp_path) as dataset:
        assert not dataset.shards[0].starts.flags.owndata
        assert len(os.listdir("/proc/self/fd")) == len(before) + 1, "the folder's own"
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_work_on_many_shards_keeps_their_order_and_stops_at_the_first_error() -> None:
    def work(item: int, advance: Callable[[int], None]) -> int:
        advance(1)
        if item == 7:
            raise DatasetError("seven")
        return item * 2

    assert for_each_shard(range(5), work, label="", total_bytes=5, progress=True) == [0, 2, 4, 6, 8]
    assert for_each_shard([], work, label="", total_bytes=0, progress=False) == []
    with pytest.raises(DatasetError, match="seven"):
        for_each_shard(range(100), work, label="", total_bytes=100, progress=False)
