import struct

import numpy as np
import pytest

from emlio.checksum import masked_crc32c
from emlio.errors import ConfigError
from emlio.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, check_frames, frame

RECORDS = (b"", b"a", b"second record", bytes(range(256)) * 20)


def run_of(*records: bytes) -> tuple[bytearray, np.ndarray]:
    frames = [frame(record) for record in records]
    return bytearray(b"".join(frames)), np.array([len(framed) for framed in frames], np.int64)


def test_a_frame_is_length_its_checksum_data_and_its_checksum() -> None:
    framed = frame(b"data")
    assert framed[:8] == struct.pack("<Q", 4)
    assert framed[8:12] == struct.pack("<I", masked_crc32c(framed[:8]))
    assert framed[12:16] == b"data"
    assert framed[16:] == struct.pack("<I", masked_crc32c(b"data"))
    assert len(framed) == 4 + FRAME_BYTES == 4 + HEADER_BYTES + FOOTER_BYTES


def test_the_checksum_of_the_standard_vector_is_the_published_one() -> None:
    published = 0xE3069283  # CRC32C of the digits 1 to 9
    rotated = (published >> 15 | published << 17) & 0xFFFFFFFF
    assert frame(b"123456789")[-4:] == struct.pack("<I", (rotated + 0xA282EAD8) % 2**32)


@pytest.mark.parametrize("verify", [True, False])
def test_sound_frames_have_no_fault_and_yield_their_data(verify: bool) -> None:
    payload, sizes = run_of(*RECORDS)
    run = check_frames(memoryview(payload), sizes, verify=verify)
    assert run.faults == ()
    assert tuple(bytes(payload[a:b]) for a, b in zip(run.starts, run.ends, strict=True)) == RECORDS


def test_a_changed_byte_of_data_is_the_fault_of_its_frame_alone() -> None:
    payload, sizes = run_of(*RECORDS)
    run = check_frames(memoryview(payload), sizes, verify=True)
    payload[run.starts[2]] ^= 1
    faults = check_frames(memoryview(payload), sizes, verify=True).faults
    assert [fault.position for fault in faults] == [2]
    assert "CRC32C" in faults[0].reason
    assert f"0x{masked_crc32c(b'second record'):08x}" in faults[0].reason
    assert check_frames(memoryview(payload), sizes, verify=False).faults == ()


def test_a_changed_checksum_of_data_is_a_fault() -> None:
    payload, sizes = run_of(*RECORDS)
    payload[-1] ^= 0x80
    assert [fault.position for fault in check_frames(memoryview(payload), sizes, verify=True).faults] == [3]


@pytest.mark.parametrize("verify", [True, False])
def test_a_stored_length_other_than_the_announced_one_is_a_fault(verify: bool) -> None:
    payload, sizes = run_of(*RECORDS)
    struct.pack_into("<Q", payload, int(sizes[0]), 2**64 - 1)
    (fault,) = check_frames(memoryview(payload), sizes, verify=verify).faults
    assert fault.position == 1
    assert fault.reason == "the frame's length field must be 1, got 18446744073709551615"


def test_faults_of_both_sorts_come_by_rising_position() -> None:
    payload, sizes = run_of(*RECORDS)
    payload[int(sizes[:3].sum())] ^= 1  # length of the last
    payload[int(sizes[0]) + HEADER_BYTES] ^= 1  # data of the second
    faults = check_frames(memoryview(payload), sizes, verify=True).faults
    assert [fault.position for fault in faults] == [1, 3]


@pytest.mark.parametrize(
    "sizes",
    [
        [17, 28],  # too few bytes
        [17, 30],  # too many
        [1, 45],  # smaller than a frame
        [-17, 63],
        [2**62, 2**62],
        [2**63 - 1, 2**63 - 1],  # would wrap
    ],
)
def test_sizes_that_do_not_make_up_the_payload_fault_every_frame(sizes: list[int]) -> None:
    payload, honest = run_of(b"a", b"second record")
    assert honest.sum() == len(payload)
    run = check_frames(memoryview(payload), np.array(sizes, np.int64), verify=True)
    assert [fault.position for fault in run.faults] == [0, 1]
    assert f"payload of {len(payload)} bytes" in run.faults[0].reason
    assert run.ends.tolist() == [0, 0]


def test_a_truncated_payload_faults_every_frame() -> None:
    payload, sizes = run_of(*RECORDS)
    for size in range(0, len(payload), 97):
        assert len(check_frames(memoryview(payload)[:size], sizes, verify=True).faults) == len(RECORDS)


@pytest.mark.parametrize("sizes", [np.empty(0, np.int64), np.array([17], np.int32), np.array([[17]], np.int64)])
def test_sizes_of_another_shape_or_type_are_refused(sizes: np.ndarray) -> None:
    with pytest.raises(ConfigError, match="sizes must be int64"):
        check_frames(memoryview(frame(b"a")), sizes, verify=True)
