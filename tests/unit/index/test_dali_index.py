"""DALI's indexes, and writing files atomically."""

from pathlib import Path

import numpy as np
import pytest

from emlio.errors import DatasetError
from emlio.index.dali_index import (
    dali_index_name,
    find_dali_index,
    read_dali_index,
    write_dali_index,
)
from emlio.store.atomic_file import write_atomically

OFFSETS = np.array([0, 20, 40, 100], dtype=np.int64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.idx"


def test_writing_leaves_the_old_file_or_the_new_one_and_nothing_else(path: Path) -> None:
    write_dali_index(path, OFFSETS)

    def parts() -> object:
        yield b"half"
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        write_atomically(path, parts())  # type: ignore[arg-type]
    assert read_dali_index(path, 100).tolist() == OFFSETS.tolist()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


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
