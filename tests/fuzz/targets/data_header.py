"""The header of a data message, and the frame it stands in.

byte 0        bit 1: what follows is a whole frame, taken apart first; bit 0: after its stamp's checksum was put right
bytes 1 to 4  bytes of the payload, where the frame does not say it
rest          the header, or the frame
"""

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.wire.data import data_tail, decode_data_header, encode_data_header, split_data_frame
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]

_PLACE_BYTES, _STAMP_BYTES = 12, 20


def fuzz(data: bytes) -> None:
    """A header is refused or agrees with its payload, and can be written again."""
    payload_bytes = int.from_bytes(data[1:5], "little")
    frame, flags = data[5:], data[0] if data else 0
    if flags & 2:
        frame = _put_right(frame) if flags & 1 else frame
        parts = split_data_frame(memoryview(frame))
        if parts.payload is not None:
            tail = data_tail(parts.header, crc32c(parts.header), parts.lane, parts.lane_sequence)
            assert bytes(parts.payload) + tail == frame
            payload_bytes = len(parts.payload)
        frame = parts.header
    header = decode_data_header(frame, payload_bytes)
    sizes = header.record_sizes()
    assert len(sizes) == header.count
    assert int(sizes.sum()) == payload_bytes
    assert decode_data_header(memoryview(encode_data_header(header)), payload_bytes) == header


def _put_right(frame: bytes) -> bytes:
    """The frame with the checksum that it must have, if it can hold one."""
    behind = len(frame) - _STAMP_BYTES
    if behind < 0:
        return frame
    place, length = frame[behind : behind + _PLACE_BYTES], int.from_bytes(frame[-4:], "little")
    header = frame[: length & 0x7FFFFFFF] if length >> 31 else frame[max(behind - length, 0) : behind]
    return frame[: behind + _PLACE_BYTES] + crc32c(place, crc32c(header)).to_bytes(4, "little") + frame[-4:]


TARGET = Target(
    fuzz=fuzz,
    raises=(RemoteProtocolError,),
    tokens=(b"\xc6\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\x99", b"\x00\x00\x00\x80"),
)
