"""Index files and DALI's indexes."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from emlio.errors import DatasetError
from emlio.shards.files.atomic_file import write_atomically
from emlio.shards.tfrecord.index import (
    dali_index_name,
    find_dali_index,
    index_name,
    open_index,
    read_dali_index,
    write_dali_index,
    write_index,
)

OFFSETS = np.array([0, 20, 40, 100], dtype=np.int64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / index_name("a.tfrecord")


def test_the_index_lies_beside_the_shard_under_its_name(path: Path) -> None:
    assert path.name == "a.tfrecord.index.npy"


def test_a_large_index_stays_on_disk(path: Path) -> None:
    offsets = np.arange(300_001, dtype=np.int64) * 20
    write_index(path, offsets)
    read = open_index(path, 6_000_000)
    assert str(path) in Path("/proc/self/maps").read_text()
    assert not read.flags.writeable
    assert np.array_equal(read, offsets)
    del read
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_a_fault_deep_in_a_large_index_is_found(path: Path) -> None:
    offsets = np.arange(2_200_001, dtype=np.int64) * 20
    offsets[1_048_577] -= 5
    write_index(path, offsets)
    with pytest.raises(DatasetError, match=r"record 1048576 .*at least 16 bytes"):
        open_index(path, 44_000_000)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (OFFSETS.astype(np.int32), "one row of int64, its header is .*<i4"),
        (OFFSETS.astype(">i8"), "one row of int64, its header is .*>i8"),
        (OFFSETS.reshape(2, 2), r"its header is .*\(2, 2\)"),
        (OFFSETS[:0], "at least one offset"),
        (OFFSETS + 1, "first offset must be 0, got 1"),
        (OFFSETS[:-1], "last offset must be the shard's size of 100 bytes, got 40"),
        (np.array([0, 30, 40, 100]), "record 1 "),
        (np.array([0, 90, 80, 100]), "record 1 "),
        (np.array([0, 2**63 - 10, -(2**63) + 20, 100]), "must be inside the file"),
        (np.array([0, -50, 100]), "must be inside the file"),
    ],
)
def test_what_cannot_be_the_offsets_of_the_file_is_refused(
    path: Path, array: npt.NDArray[np.int64], reason: str
) -> None:
    np.save(path, array)
    with pytest.raises(DatasetError, match=reason) as caught:
        open_index(path, 100)
    assert str(path) in str(caught.value)
    assert f"emlio index --force {path.parent}" in str(caught.value)


def test_an_index_cut_at_any_byte_is_refused(path: Path) -> None:
    write_index(path, OFFSETS)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(DatasetError, match="emlio index --force"):
            open_index(path, 100)


def test_a_header_that_promises_too_much_is_refused_before_memory_is_taken(path: Path) -> None:
    write_index(path, OFFSETS)
    path.write_bytes(path.read_bytes().replace(b"(4,), }         ", b"(4000000000,), }"))
    with pytest.raises(DatasetError, match="4000000000 offsets need"):
        open_index(path, 100)


def test_an_index_of_pickled_objects_is_refused(path: Path) -> None:
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DatasetError, match=r"one row of int64, its header is .*O"):
        open_index(path, 100)


def test_writing_leaves_the_old_file_or_the_new_one_and_nothing_else(path: Path) -> None:
    write_index(path, OFFSETS)

    def parts() -> object:
        yield b"half"
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        write_atomically(path, parts())  # type: ignore[arg-type]
    assert open_index(path, 100).tolist() == OFFSETS.tolist()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_new_index_replaces_the_old_one_and_may_be_read_by_all(path: Path) -> None:
    write_index(path, OFFSETS)
    write_index(path, OFFSETS[:2])
    assert open_index(path, 20).tolist() == [0, 20]
    plain = path.with_name("plain")
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize(
    ("shard", "name"),
    [
        ("a.tfrecord", "a.idx"),
        ("a.b.tfrecords", "a.b.idx"),
        ("train-00000-of-00002", "train-00000-of-00002.idx"),
        ("t.tfrecord-00000-of-00002", "t.tfrecord-00000-of-00002.idx"),
    ],
)
def test_dali_indexes_have_the_names_people_give_them(shard: str, name: str) -> None:
    assert dali_index_name(shard) == name


def test_a_dali_index_has_a_line_of_offset_and_size_for_each_record(path: Path) -> None:
    write_dali_index(path, OFFSETS)
    assert path.read_text() == "0 20\n20 20\n40 60\n"
    assert read_dali_index(path, 100).tolist() == OFFSETS.tolist()


def test_an_empty_dali_index_is_that_of_an_empty_file(path: Path) -> None:
    path.touch()
    assert read_dali_index(path, 0).tolist() == [0]
    with pytest.raises(DatasetError, match="must describe 100 bytes, describes none"):
        read_dali_index(path, 100)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0 20\n20 20\n40 50\n", "record 2 must have 60 bytes up to .*got 50"),
        ("0 20\n20 19\n40 60\n", "record 1 must have 20 bytes .*got 19"),
        ("0 20\n40 60\n20 20\n", "at least 16 bytes"),
        ("0 20 20 20\n40 60\n", "every line"),
        ("0 20\n20\n", "every line"),
        ("0 x\n", "every line"),
        ("0 99999999999999999999999\n", "every line"),
        ("10 90\n", "first offset must be 0, got 10"),
    ],
)
def test_a_dali_index_of_another_file_is_refused(path: Path, text: str, reason: str) -> None:
    path.write_text(text)
    with pytest.raises(DatasetError, match=reason):
        read_dali_index(path, 100)


def test_a_dali_index_longer_than_a_block_is_read_whole(path: Path) -> None:
    offsets = np.arange(0, 200_001 * 16, 16, dtype=np.int64)
    write_dali_index(path, offsets)
    assert path.stat().st_size > 1 << 20
    assert np.array_equal(read_dali_index(path, int(offsets[-1])), offsets)


def test_a_dali_index_may_end_without_a_newline(path: Path) -> None:
    path.write_text("0 20\r\n20 80")
    assert read_dali_index(path, 100).tolist() == [0, 20, 100]


def test_a_dali_index_of_more_records_than_the_shard_has_room_for_is_refused_before_it_is_read_whole(
    path: Path,
) -> None:
    path.write_text("0 16\n" * 7)
    with pytest.raises(DatasetError, match="more records than fit into 100 bytes"):
        read_dali_index(path, 100)


def test_a_dali_index_with_an_endless_line_is_refused(path: Path) -> None:
    path.write_bytes(b"0 " + b" " * (3 << 20) + b"100\n")
    with pytest.raises(DatasetError, match="every line"):
        read_dali_index(path, 100)


def test_dali_indexes_are_found_where_people_keep_them(tmp_path: Path) -> None:
    shard = tmp_path / "train" / "a.tfrecord"
    shard.parent.mkdir()
    assert find_dali_index(shard) is None
    for place in ("idx/a.idx", "idx_files/a.tfrecord.idx", "train/a.idx"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).touch()
        assert find_dali_index(shard) == tmp_path / place
