"""Checking every record of a file."""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from emlio.errors import CorruptRecordError, DatasetError
from emlio.formats.tfrecord.scan import scan
from emlio.formats.tfrecord.verify import frame_faults, verify_records
from emlio_testing.datasets import write_tfrecord

SIZES = [0, 10, 2_000_000, 5, 900_000, 300_000, 7]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.tfrecord"
    write_tfrecord(path, [os.urandom(size) for size in SIZES])
    return path


def damage(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0x10]))


def test_a_sound_file_passes_and_every_byte_is_counted(path: Path) -> None:
    steps: list[int] = []
    verify_records(path, scan(path).offsets, steps.append)
    assert sum(steps) == path.stat().st_size
    assert len(steps) > 1


def test_the_first_bad_record_is_raised_with_both_checksums(path: Path) -> None:
    offsets = scan(path).offsets
    damage(path, int(offsets[4]) + 500_000)
    damage(path, int(offsets[6]) + 13)
    with pytest.raises(CorruptRecordError, match=r"its 900000 bytes must be 0x[0-9a-f]{8}, stored") as caught:
        verify_records(path, offsets)
    assert (caught.value.shard, caught.value.record, caught.value.offset) == ("a.tfrecord", 4, int(offsets[4]))


def faults(path: Path, offsets: npt.NDArray[np.int64]) -> dict[int, str]:
    return frame_faults(memoryview(path.read_bytes()), offsets)


def test_all_bad_records_are_found(path: Path) -> None:
    offsets = scan(path).offsets
    for record in (0, 2, 6):
        damage(path, int(offsets[record + 1]) - 2)
    assert [*faults(path, offsets)] == [0, 2, 6]


def test_an_index_of_other_records_is_noticed(path: Path) -> None:
    offsets = np.delete(scan(path).offsets, 5)
    assert faults(path, offsets) == {4: "its length must be 1200016 as in the index, stored is 900000"}


def test_a_length_with_a_bad_checksum_is_noticed(path: Path) -> None:
    offsets = scan(path).offsets
    damage(path, int(offsets[3]) + 9)
    found = faults(path, offsets)
    assert [*found] == [3]
    assert "the length 5 must be" in found[3]


def test_records_after_the_end_of_a_cut_file_are_all_bad(path: Path) -> None:
    offsets = scan(path).offsets
    os.truncate(path, int(offsets[5]) + 100)
    found = faults(path, offsets)
    assert [*found] == [5, 6]
    assert "the file ends" in found[5]
    with pytest.raises(CorruptRecordError, match=r"record 5 .*the file ends"):
        verify_records(path, offsets)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="gone: cannot be read"):
        verify_records(tmp_path / "gone", np.array([0, 20], dtype=np.int64))
