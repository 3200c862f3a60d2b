"""The scan against a reader that does one thing after the other."""

import struct
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.checksum import masked_crc32c
from emlio.errors import CorruptRecordError
from emlio.formats.tfrecord.scan import masked_length_crcs, scan
from emlio.formats.tfrecord.verify import frame_faults, verify_records
from emlio_testing.datasets import write_tfrecord

SMALL = st.integers(0, 60)
# Around the sizes at which the scan changes its gait and a record no longer fits into a block.
LARGE = st.sampled_from([4_000, 40_000, 65_519, 65_520, 65_521, 90_000, 300_000, 1_048_560, 1_048_561, 1_300_000])
RUNS = st.lists(
    st.tuples(st.one_of(SMALL, LARGE), st.integers(1, 40)), max_size=8
)  # runs of equal sizes, so that both gaits are kept up for a while


def naive(path: Path) -> tuple[list[int], list[int]]:
    offsets, crcs = [0], []
    with path.open("rb") as file:
        while header := file.read(12):
            (length,) = struct.unpack("<Q", header[:8])
            file.seek(length, 1)
            crcs.append(struct.unpack("<I", file.read(4))[0])
            offsets.append(file.tell())
    return offsets, crcs


def payloads(runs: list[tuple[int, int]]) -> list[bytes]:
    made: list[bytes] = []
    for size, count in runs:
        fitting = min(count, max(3_000_000 // (size + 1), 1)) if size > 60 else count * 20
        made += [bytes([len(made) % 256]) * size for _ in range(fitting)]
    return made


@settings(max_examples=40, deadline=None)
@given(RUNS)
def test_the_scan_finds_what_a_naive_reader_finds(runs: list[tuple[int, int]]) -> None:
    records = payloads(runs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.tfrecord")
        write_tfrecord(path, records)
        steps: list[int] = []
        framing = scan(path, steps.append)
        offsets, crcs = naive(path)
        assert framing.offsets.tolist() == offsets
        assert framing.data_crcs.tolist() == crcs
        assert framing.offsets.dtype == np.int64
        assert framing.data_crcs.dtype == np.uint32
        assert framing.records == len(records)
        assert sum(steps) == path.stat().st_size
        verify_records(path, framing.offsets)
        whole, bounds = path.read_bytes(), pairwise(framing.offsets.tolist())
        assert [whole[begin + 12 : end - 4] for begin, end in bounds] == records


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30), st.data())
def test_no_flipped_bit_goes_unnoticed(records: list[bytes], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.tfrecord")
        write_tfrecord(path, records)
        offsets = scan(path).offsets
        content = bytearray(path.read_bytes())
        place = data.draw(st.integers(0, len(content) - 1), label="byte")
        content[place] ^= 1 << data.draw(st.integers(0, 7), label="bit")
        path.write_bytes(content)
        record = int(np.searchsorted(offsets, place, side="right")) - 1
        assert [*frame_faults(memoryview(content), offsets)] == [record]
        with pytest.raises(CorruptRecordError) as found:
            verify_records(path, offsets)
        where = (found.value.shard, found.value.record, found.value.offset)
        assert where == ("a.tfrecord", record, int(offsets[record]))
        if place - int(offsets[record]) >= 12:
            assert scan(path).offsets.tolist() == offsets.tolist()
            return
        with pytest.raises(CorruptRecordError) as caught:
            scan(path)
        assert (caught.value.record, caught.value.offset) == (record, int(offsets[record]))


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_the_checksums_of_many_lengths_are_those_of_each(lengths: list[int]) -> None:
    expected = [masked_crc32c(length.to_bytes(8, "little")) for length in lengths]
    assert masked_length_crcs(np.array(lengths, dtype=np.uint64)).tolist() == expected
