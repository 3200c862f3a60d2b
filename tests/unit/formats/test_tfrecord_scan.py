"""Scanning one TFRecord file: what is refused, and how it is said."""

import gzip
import hashlib
import os
import struct
import zlib
from pathlib import Path

import pytest

from emlio.checksum import masked_crc32c
from emlio.errors import CorruptRecordError, DatasetError
from emlio.formats.tfrecord.mapping import content_digest
from emlio.formats.tfrecord.scan import scan
from emlio.tfrecord import frame
from emlio_testing.datasets import write_tfrecord


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.tfrecord"


def test_an_empty_file_is_a_shard_without_records(path: Path) -> None:
    path.touch()
    framing = scan(path)
    assert framing.records == 0
    assert framing.offsets.tolist() == [0]


def test_a_file_cut_at_any_byte_is_refused_unless_cut_between_records(path: Path) -> None:
    records = [b"", b"one", b"x" * 50]
    whole = b"".join(frame(record) for record in records)
    bounds = [0, 16, 35, 101]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        if size in bounds:
            assert scan(path).offsets.tolist() == bounds[: bounds.index(size) + 1]
            continue
        with pytest.raises(CorruptRecordError, match="truncated") as caught:
            scan(path)
        record = sum(bound <= size for bound in bounds) - 1
        assert (caught.value.shard, caught.value.record, caught.value.offset) == ("a.tfrecord", record, bounds[record])


@pytest.mark.parametrize("size", [40, 200_000])
def test_any_flipped_bit_of_a_length_or_its_checksum_is_found(path: Path, size: int) -> None:
    whole = frame(b"a" * size) + frame(b"b" * size) + frame(b"c" * size)
    for bit in range(96):
        content = bytearray(whole)
        content[size + 16 + bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        with pytest.raises(CorruptRecordError, match=r"masked CRC32C .*must be 0x[0-9a-f]{8}, stored is 0x") as caught:
            scan(path)
        assert (caught.value.record, caught.value.offset) == (1, size + 16)


@pytest.mark.parametrize(
    ("kind", "compress"),
    [
        ("gzip", gzip.compress),
        *(("zlib", lambda raw, level=level: zlib.compress(raw, level)) for level in (1, 5, 6, 9)),
    ],
)
@pytest.mark.parametrize("records", [0, 1, 500])
def test_a_compressed_file_is_named_as_such_with_the_way_out(
    path: Path, kind: str, compress: object, records: int
) -> None:
    assert callable(compress)
    path.write_bytes(compress(b"".join(frame(os.urandom(40)) for _ in range(records))))
    with pytest.raises(DatasetError, match=f"compressed with {kind}") as caught:
        scan(path)
    assert not isinstance(caught.value, CorruptRecordError)
    assert f"emlio convert {path.parent} {path.parent}-emlio" in str(caught.value)


def test_a_record_whose_length_begins_like_a_compressed_file_is_read(path: Path) -> None:
    write_tfrecord(path, [b"x" * 0x8B1F, b"y" * 0x0178])
    assert scan(path).records == 2


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(DatasetError, match=r"a\.tfrecord: cannot be opened: No such file"):
        scan(path)


def test_a_directory_is_no_shard(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="cannot be opened"):
        scan(tmp_path)


@pytest.mark.parametrize("size", [1000, 100_000])
def test_a_file_that_shrinks_under_the_scan_is_an_error_not_a_crash(path: Path, size: int) -> None:
    write_tfrecord(path, [b"x" * size] * (40_000_000 // size))

    def shrink(done_bytes: int) -> None:
        os.truncate(path, done_bytes + 5)

    with pytest.raises(DatasetError, match=r"another process is changing it|truncated"):
        scan(path, shrink)


def test_the_digest_tells_apart_contents_and_lengths(path: Path) -> None:
    digests: set[str] = set()
    for records in ([b"ab", b"c"], [b"a", b"bc"], [b"ab", b"d"], [b"c", b"ab"], []):
        write_tfrecord(path, records)
        digests.add(content_digest(scan(path)))
    assert len(digests) == 5


def test_the_digest_is_the_documented_one(path: Path) -> None:
    write_tfrecord(path, [b"hello", b"world"])
    crcs = [masked_crc32c(b"hello"), masked_crc32c(b"world")]
    expected = hashlib.blake2b(struct.pack("<3q2I", 0, 21, 42, *crcs), digest_size=16).hexdigest()
    assert content_digest(scan(path)) == expected == "5dffadbe21e589a50fe0b4b15c1c0412"


@pytest.mark.parametrize("kept", [199_999, 200_000, 200_015, 200_016, 200_017, 200_020, 200_031, 299_000, 600_047])
def test_a_file_of_large_records_cut_short_is_refused(path: Path, kept: int) -> None:
    write_tfrecord(path, [b"x" * 200_000] * 3)
    os.truncate(path, kept)
    if kept == 200_016:
        assert scan(path).records == 1
        return
    with pytest.raises(CorruptRecordError, match="truncated") as caught:
        scan(path)
    assert caught.value.record == kept // 200_016
    assert caught.value.offset == kept // 200_016 * 200_016


def test_the_record_number_counts_over_all_blocks(path: Path) -> None:
    write_tfrecord(path, [b"x" * 984] * 3000)
    content = bytearray(path.read_bytes())
    content[2_500_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptRecordError, match="record 2500 at offset 2500000"):
        scan(path)
