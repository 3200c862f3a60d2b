"""Opening datasets: indexes kept and trusted, or not."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from emlio.errors import ClosedError, CorruptRecordError, DatasetError
from emlio.shards.dataset import Dataset
from emlio.shards.files.folder import Folder
from emlio.shards.files.parallel import for_each_shard
from emlio.shards.opening.choice import open_dataset
from emlio.shards.tfrecord.index import index_name, open_index, write_index
from emlio.shards.tfrecord.mapping import mapping_name
from emlio.shards.tfrecord.store import IndexStore, default_cache_dir, stamp_name
from emlio.shards.tfrecord.verify import read_records
from emlio_testing.datasets import make_dataset, numbered_payload, write_tfrecord

NAME = "train-00001-of-00003.tfrecord"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home


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
    for shard in dataset.shards:
        yield from read_records(shard.path, shard.offsets, range(shard.records))


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
        assert all((shard.mapping is not None) == is_mapped for shard in dataset.shards)
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


def test_the_first_opening_keeps_an_index_and_the_second_uses_it(foreign: Path, cache: Path) -> None:
    open_dataset("d", foreign).close()
    assert {index_name(NAME), stamp_name(NAME)} < files(foreign)
    assert files(cache) == set()
    with open_dataset("d", foreign) as dataset:
        assert dataset.records == 30
    (foreign / index_name(NAME)).write_bytes(b"damaged")  # nobody scans, or it would not be met
    with pytest.raises(DatasetError, match=index_name(NAME)):
        open_dataset("d", foreign)
    open_dataset("d", foreign, rebuild=True).close()


def test_a_foreign_shard_that_changed_is_scanned_again(foreign: Path) -> None:
    with open_dataset("d", foreign) as dataset:
        before = dataset.entries
    write_tfrecord(foreign / NAME, [b"new"] * 4)
    with open_dataset("d", foreign) as dataset:
        assert dataset.entries[1].records == 4
        assert dataset.entries[1].digest != before[1].digest
        assert (dataset.entries[0], dataset.entries[2]) == (before[0], before[2])


def test_a_foreign_shard_with_new_content_of_the_same_size_is_scanned_again(foreign: Path) -> None:
    with open_dataset("d", foreign) as dataset:
        before = dataset.entries[1].digest
        sizes = np.diff(dataset.shards[1].offsets) - 16
        status = dataset.shards[1].path.stat()
    write_tfrecord(foreign / NAME, [b"n" * int(size) for size in sizes])
    os.utime(foreign / NAME, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with open_dataset("d", foreign) as dataset:
        assert dataset.entries[1].digest != before


def test_a_mapped_shard_of_another_size_is_refused_with_both_sizes(mapped: Path) -> None:
    size = (mapped / NAME).stat().st_size
    write_tfrecord(mapped / NAME, [b"new"] * 4)
    expected = f"has 76 bytes, {size} in its mapping.*emlio index --force --mapping {mapped}"
    with pytest.raises(DatasetError, match=expected):
        open_dataset("d", mapped)


def test_a_mapped_shard_of_another_content_is_refused(mapped: Path) -> None:
    with open_dataset("d", mapped) as dataset:
        sizes = np.diff(dataset.shards[1].offsets) - 16
        status = dataset.shards[1].path.stat()
    write_tfrecord(mapped / NAME, [b"n" * int(size) for size in sizes])
    os.utime(mapped / NAME, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(DatasetError, match=r"has digest [0-9a-f]{32}, [0-9a-f]{32} in its mapping"):
        open_dataset("d", mapped)


def test_a_mapped_dataset_that_was_copied_is_accepted(mapped: Path) -> None:
    for path in mapped.iterdir():
        os.utime(path, ns=(1, 1))
    with open_dataset("d", mapped) as dataset:
        assert dataset.records == 30
        assert dataset.shards[0].mtime_ns == 1


def test_a_mapped_dataset_needs_no_stamps(mapped: Path) -> None:
    for path in mapped.glob("*.digest.json"):
        path.unlink()
    before = files(mapped)
    with open_dataset("d", mapped) as dataset:
        assert dataset.records == 30
    assert files(mapped) == before


def test_a_mapped_dataset_without_indexes_is_scanned(mapped: Path) -> None:
    for pattern in ("*.digest.json", "*.npy"):
        for path in mapped.glob(pattern):
            path.unlink()
    with open_dataset("d", mapped) as dataset:
        assert list(read_all(dataset)) == [numbered_payload(record) for record in range(30)]
    assert index_name(NAME) in files(mapped)


def test_an_index_with_other_records_than_the_mapping_is_refused(mapped: Path) -> None:
    offsets = open_index(mapped / index_name(NAME), (mapped / NAME).stat().st_size)
    write_index(mapped / index_name(NAME), np.delete(offsets, 3))
    with pytest.raises(DatasetError, match=r"must have 10 records and .*digest\.json, got 9.*emlio index --force"):
        open_dataset("d", mapped)
    (mapped / stamp_name(NAME)).unlink()
    with pytest.raises(DatasetError, match="has 9 records in its index, 10 in its mapping"):
        open_dataset("d", mapped)
    open_dataset("d", mapped, rebuild=True).close()
    open_dataset("d", mapped).close()


def test_an_index_with_plausible_but_wrong_offsets_is_refused(foreign: Path) -> None:
    with open_dataset("d", foreign) as dataset:
        offsets = dataset.shards[1].offsets.copy()
    offsets[5] += 1
    write_index(foreign / index_name(NAME), offsets)
    with pytest.raises(DatasetError, match=r"CRC32C 0x[0-9a-f]{8} as in .*and 0x[0-9a-f]{8}.*emlio index --force"):
        open_dataset("d", foreign)


@pytest.mark.parametrize("name", [index_name(NAME), stamp_name(NAME)])
def test_a_damaged_index_or_stamp_is_refused_and_can_be_rebuilt(foreign: Path, name: str) -> None:
    open_dataset("d", foreign).close()
    (foreign / name).write_bytes(b"damaged")
    with pytest.raises(DatasetError, match=f"{name}: .*emlio index --force {foreign}"):
        open_dataset("d", foreign)
    open_dataset("d", foreign, rebuild=True).close()
    open_dataset("d", foreign).close()


def test_missing_shards_are_told_not_refused(mapped: Path) -> None:
    (mapped / NAME).unlink()
    with open_dataset("d", mapped) as dataset:
        assert dataset.missing == (NAME,)
        assert len(dataset.entries) == 2


def test_shards_without_any_record_are_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").touch()
    with pytest.raises(DatasetError, match="must hold records, there are none in its 1 shard"):
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
        (shard, files) = dataset.tfrecord_shards[1], dataset.files
        files.check_unchanged(1, os.fstat(file.fileno()))
        os.utime(file.fileno(), ns=(5, 5))
        with pytest.raises(
            DatasetError, match=f"{NAME}: changed while it was served.*mtime {shard.mtime_ns} ns, now .*mtime 5"
        ):
            files.check_unchanged(1, os.fstat(file.fileno()))
        os.truncate(file.fileno(), 10)
        with pytest.raises(DatasetError, match=f"had {shard.size_bytes} bytes .*now 10 bytes"):
            files.check_unchanged(1, os.fstat(file.fileno()))


def test_a_given_cache_folder_keeps_the_shards_folder_as_it_is(foreign: Path, tmp_path: Path, cache: Path) -> None:
    before = files(foreign)
    for _ in range(2):
        open_dataset("d", foreign, tmp_path / "indexes").close()
    assert files(foreign) == before
    assert {index_name(NAME), stamp_name(NAME)} < files(tmp_path / "indexes")
    assert files(cache) == set()


def test_datasets_of_equal_names_do_not_share_a_cache_folder(tmp_path: Path) -> None:
    for folder, records in (("a", 3), ("b", 6)):
        make_dataset(tmp_path / folder / "data", records=records, shards=3, mapped=False)
        open_dataset("d", tmp_path / folder / "data", tmp_path / "indexes").close()
    for folder, records in (("a", 3), ("b", 6)):
        with open_dataset("d", tmp_path / folder / "data", tmp_path / "indexes") as dataset:
            assert dataset.records == records


def test_a_damaged_index_in_a_cache_folder_is_rebuilt_by_the_command_that_is_named(
    foreign: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "indexes"
    open_dataset("d", foreign, folder).close()
    for name in (index_name(NAME), stamp_name(NAME)):
        (damaged,) = folder.rglob(name)
        damaged.write_bytes(b"damaged")
        with pytest.raises(DatasetError, match=f"{name}: .*: emlio index --force --cache-dir {folder} {foreign}$"):
            open_dataset("d", foreign, folder)
        open_dataset("d", foreign, folder, rebuild=True).close()
        open_dataset("d", foreign, folder).close()


def test_a_cached_index_of_a_changed_shard_is_not_used(foreign: Path, tmp_path: Path) -> None:
    open_dataset("d", foreign, tmp_path / "indexes").close()
    write_tfrecord(foreign / NAME, [b"new"] * 4)
    with open_dataset("d", foreign, tmp_path / "indexes") as dataset:
        assert dataset.shards[1].records == 4


OFFSETS = np.array([0, 20], dtype=np.int64)


def save(store: IndexStore) -> OSError | None:
    return store.save("s", OFFSETS, status_of(), digest="d")


def status_of(*, size_bytes: int = 20, mtime_ns: int = 7, ctime_ns: int = 8, inode: int = 9) -> os.stat_result:
    """What the system says of a file; the tuple's numbers are followed by what has a name only."""
    return os.stat_result(
        (0o100644, inode, 1, 1, 0, 0, size_bytes, 0, 0, 0), {"st_mtime_ns": mtime_ns, "st_ctime_ns": ctime_ns}
    )


def test_a_folder_that_cannot_be_written_gets_its_index_in_the_user_s_cache(foreign: Path, cache: Path) -> None:
    store = IndexStore(Folder(foreign), may_write=lambda _: False)
    before = files(foreign)
    assert save(store) is None
    assert files(foreign) == before
    assert files(cache) == {index_name("s"), stamp_name("s")}
    kept = store.load("s", status_of(), mapped=False)
    assert kept is not None
    assert (kept.offsets.tolist(), kept.digest) == ([0, 20], "d")


def test_a_folder_that_refuses_although_it_seemed_writable_falls_back_to_the_cache(tmp_path: Path, cache: Path) -> None:
    store = IndexStore(Folder(tmp_path), may_write=lambda _: True)
    (tmp_path / stamp_name("s")).mkdir()
    assert save(store) is None
    assert files(cache) == {index_name("s"), stamp_name("s")}


@pytest.mark.parametrize("other", [{"size_bytes": 21}, {"mtime_ns": 8}, {"ctime_ns": 9}, {"inode": 10}])
def test_an_index_of_another_file_is_not_used(tmp_path: Path, other: dict[str, int]) -> None:
    store = IndexStore(Folder(tmp_path))
    save(store)
    assert store.load("s", status_of(), mapped=True) is not None
    assert store.load("s", status_of(**other), mapped=True) is None


def test_an_index_beside_the_shard_replaces_the_cached_one(tmp_path: Path, cache: Path) -> None:
    save(IndexStore(Folder(tmp_path), may_write=lambda _: False))
    (index,) = cache.rglob("*.npy")
    index.write_bytes(b"damaged")
    store = IndexStore(Folder(tmp_path))
    save(store)
    assert store.load("s", status_of(), mapped=False) is not None


def test_where_nothing_can_be_written_the_dataset_opens_all_the_same(
    foreign: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with open_dataset("d", foreign, tmp_path / "file" / "folder") as dataset:
        assert dataset.records == 30
    (said,) = caplog.messages
    assert said.startswith(
        "dataset d: the indexes of 3 of 3 shards cannot be saved, so every start builds them again: [Errno"
    )
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
        assert not dataset.shards[0].offsets.flags.owndata
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


def test_builders_make_the_records_they_promise(tmp_path: Path) -> None:
    assert make_dataset(tmp_path / "a", records=3, shards=2, payload=lambda record: b"%d" % record) == [
        b"0",
        b"1",
        b"2",
    ]
    sized = make_dataset(tmp_path / "b", records=300, shards=2, payload=100)
    assert {len(record) for record in sized} == {100}
    assert [int.from_bytes(record[:8], "little") for record in sized] == list(range(300))
    assert len(set(make_dataset(tmp_path / "c", records=300, shards=2, mapped=False))) == 300
    assert mapping_name(0) not in files(tmp_path / "c")
    with pytest.raises(ValueError, match=r"shards must be in \[1, 3\], got 4"):
        make_dataset(tmp_path, records=3, shards=4)
    with pytest.raises(ValueError, match="size_bytes must be at least 8"):
        numbered_payload(1, 7)
