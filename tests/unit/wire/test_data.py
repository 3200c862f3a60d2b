"""Data headers: limits, and agreement with the payload they travel with."""

from typing import Any

import msgspec
import numpy as np
import pytest

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.wire.data import (
    DATA_VERSION,
    DataHeader,
    data_tail,
    decode_data_header,
    encode_data_header,
    header_apart,
    ids_checksum,
    split_data_frame,
    tail_room,
)
from emlio.wire.limits import MAX_DATA_HEADER_BYTES, MAX_MESSAGE_RECORDS, MAX_PAYLOAD_BYTES

_PLACE = bytes(16)
"""A stamp without the header's length."""


def _header(numbers: list[int], **changes: Any) -> DataHeader:
    fields: dict[str, Any] = {
        "version": DATA_VERSION,
        "session": 1,
        "stream": 2,
        "number": 5,
        "epoch": 3,
        "slot": 6,
        "count": len(numbers),
        "ids_crc": 7,
        "sizes": np.array(numbers, "<u4").tobytes(),
    }
    return DataHeader(**(fields | changes))


def _tail(head: bytes, lane: int = 4, sequence: int = 9) -> bytes:
    return data_tail(head, crc32c(head), lane, sequence)


def _apart(head: bytes, payload: memoryview, lane: int = 4, sequence: int = 9) -> bytes:
    return header_apart(head, crc32c(head), payload, lane, sequence)


def test_sizes_survive_the_way() -> None:
    sizes = [17, MAX_PAYLOAD_BYTES - 33, 16]
    header = decode_data_header(encode_data_header(_header(sizes)), MAX_PAYLOAD_BYTES)
    assert header.record_sizes().tolist() == sizes
    assert header.record_sizes().dtype == np.int64


@pytest.mark.parametrize(
    ("header", "payload_bytes", "what"),
    [
        pytest.param(_header([16, 16], count=3), 32, "3 records must hold 12 bytes of sizes, got 8", id="fewer sizes"),
        pytest.param(_header([16, 16], count=1), 32, "1 records must hold 4 bytes of sizes, got 8", id="more sizes"),
        pytest.param(_header([16], sizes=b"\0" * 3), 16, "must hold 4 bytes of sizes, got 3", id="cut sizes"),
        pytest.param(_header([16, 17]), 32, "must add up to the payload's 32 bytes, got 33", id="payload too short"),
        pytest.param(_header([16, 17]), 34, "must add up to the payload's 34 bytes, got 33", id="payload too long"),
        pytest.param(_header([2**32 - 1] * 3), 3, "got 12884901885", id="sum beyond 32 bits"),
        pytest.param(_header([16], version=2), 16, "must be of version 4, got 2", id="version"),
        pytest.param(_header([]), 0, "count", id="no records"),
        pytest.param(_header([16], count=MAX_MESSAGE_RECORDS + 1), 16, "count", id="too many records"),
        pytest.param(_header([16], session=-1), 16, "session", id="negative"),
        pytest.param(_header([16], slot=2**62), 16, "slot", id="huge"),
        pytest.param(_header([16], ids_crc=2**32), 16, "ids_crc", id="checksum"),
    ],
)
def test_a_header_that_does_not_fit_is_refused_and_says_why(header: DataHeader, payload_bytes: int, what: str) -> None:
    if what in ("count", "session", "slot", "ids_crc"):
        # Positions, because the header is an array.
        what = rf"\$\[{DataHeader.__struct_fields__.index(what)}\]"
    with pytest.raises(RemoteProtocolError, match=what):
        decode_data_header(encode_data_header(header), payload_bytes)


def test_the_most_records_a_message_may_hold_fit_the_largest_header() -> None:
    header = _header([16] * MAX_MESSAGE_RECORDS, session=2**62 - 1, slot=2**62 - 1)
    data = encode_data_header(header)
    assert len(data) <= MAX_DATA_HEADER_BYTES
    assert len(_tail(data)) <= tail_room(MAX_MESSAGE_RECORDS)
    assert decode_data_header(data, 16 * MAX_MESSAGE_RECORDS) == header


def test_limits_of_header_and_payload_are_checked_before_anything_is_decoded() -> None:
    with pytest.raises(RemoteProtocolError, match=f"at most {MAX_DATA_HEADER_BYTES} bytes"):
        decode_data_header(b"\0" * (MAX_DATA_HEADER_BYTES + 1), 1)
    with pytest.raises(RemoteProtocolError, match=f"at most {MAX_PAYLOAD_BYTES} bytes"):
        decode_data_header(b"", MAX_PAYLOAD_BYTES + 1)


def test_every_cut_of_a_header_is_refused() -> None:
    data = encode_data_header(_header([16, 32, 300]))
    assert decode_data_header(memoryview(data), 348).count == 3
    for length in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            decode_data_header(data[:length], 348)


@pytest.mark.parametrize("body", [b"\x91" * 10_000, b"\x9a" + b"\xa2\xff\xfe" * 10, b"\xc1", b"\xdd\xff\xff\xff\xff"])
def test_what_is_no_header_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="must be the msgpack array of version 4"):
        decode_data_header(body, 0)


def test_the_version_stays_first_for_ever() -> None:
    assert msgspec.msgpack.decode(encode_data_header(_header([16])))[0] == DATA_VERSION


def test_the_stamps_checksum_continues_the_headers_which_who_reads_computes_once() -> None:
    head = encode_data_header(_header([16]))
    stamp = _tail(head, 7, 3)[len(head) :]
    assert len(stamp) == 20
    assert int.from_bytes(stamp[12:16], "little") == crc32c(head + stamp[:12])
    assert int.from_bytes(stamp[16:], "little") == len(head)


def test_the_ids_checksum_is_that_of_little_endian_64_bit_numbers() -> None:
    ids = np.array([1, 2, 2**40], np.int64)
    spelled = b"".join(number.to_bytes(8, "little") for number in (1, 2, 2**40))
    assert ids_checksum(ids) == crc32c(spelled)
    assert ids_checksum(ids[::-1]) != ids_checksum(ids)
    assert ids_checksum(np.repeat(ids, 2)[::2]) == ids_checksum(ids)  # of any layout in memory


def test_the_longest_tail_fits_its_room() -> None:
    most = 2**62 - 1
    fields = dict.fromkeys(("session", "stream", "number", "epoch", "slot"), most)
    for records in (1, 3, 60, 70, 20_000):
        header = _header([16] * records, ids_crc=2**32 - 1, **fields)
        assert len(_tail(encode_data_header(header), 2**32 - 1, 2**64 - 1)) <= tail_room(records)


@pytest.mark.parametrize("payload", [b"", b"r", b"records" * 100])
def test_a_frame_is_taken_apart_into_payload_and_header(payload: bytes) -> None:
    head = encode_data_header(_header([16]))
    parts = split_data_frame(memoryview(payload + _tail(head)))
    assert (parts.payload, parts.header, parts.lane, parts.lane_sequence) == (payload, head, 4, 9)


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 8192, 100_000])
def test_a_header_may_say_that_its_payload_comes_next(size: int) -> None:
    payload, head = memoryview(bytes(at % 251 for at in range(size))), encode_data_header(_header([16]))
    parts = split_data_frame(memoryview(_apart(head, payload)))
    assert (parts.payload, parts.header, parts.lane, parts.lane_sequence) == (None, head, 4, 9)
    parts.check_apart(payload)
    for other in (bytes(size + 1), payload[1:], bytes(payload[:-1]) + b"\xff"):
        if len(other) != size or bytes(other) != bytes(payload):
            with pytest.raises(RemoteProtocolError, match="a payload must follow its header"):
                parts.check_apart(memoryview(other))


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        pytest.param(b"", "a stamp of 20 bytes, got 0 bytes", id="empty"),
        pytest.param(b"\0" * 19, "a stamp of 20 bytes, got 19 bytes", id="no stamp"),
        pytest.param(_PLACE + b"\1\0\0\0", "got a header of 1 bytes", id="shorter than its header"),
        pytest.param(b"payload" + _PLACE + b"\4\0\0\x80", "and nothing else, got a header of 4 bytes", id="both"),
        pytest.param(b"head" + _PLACE + b"\4\0\0\x80", "a checksum and a stamp", id="no checksum"),
        pytest.param(_PLACE + b"\xff\xff\xff\x7f", f"at most {MAX_DATA_HEADER_BYTES} bytes, got 2147483647", id="huge"),
        pytest.param(
            _PLACE + b"\xff\xff\xff\xff", f"at most {MAX_DATA_HEADER_BYTES} bytes, got 2147483647", id="huge, apart"
        ),
    ],
)
def test_a_frame_that_cannot_hold_its_header_is_refused(frame: bytes, what: str) -> None:
    with pytest.raises(RemoteProtocolError, match=what):
        split_data_frame(memoryview(frame))


def _read_frame(frame: bytearray, payload: bytes) -> None:
    parts = split_data_frame(memoryview(frame))
    if parts.payload is None:
        parts.check_apart(memoryview(payload))
    decode_data_header(parts.header, len(payload if parts.payload is None else parts.payload))


def test_a_frame_with_any_bit_of_its_tail_turned_is_refused() -> None:
    payload, head = bytes(348), encode_data_header(_header([16, 32, 300]))
    for apart in (False, True):
        frame = _apart(head, memoryview(payload)) if apart else payload + _tail(head)
        for bit in range(8 * (0 if apart else len(payload)), 8 * len(frame)):
            changed = bytearray(frame)
            changed[bit // 8] ^= 1 << bit % 8
            with pytest.raises(RemoteProtocolError):
                _read_frame(changed, payload)
