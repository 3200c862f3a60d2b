"""The header of a data message, and the frame it stands in.

byte 0        bit 0: put the right checksum before what follows; bit 1: what follows is a whole frame, taken apart first
bytes 1 to 4  bytes of the payload, where the frame does not say it
rest          the header, or the frame
"""

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.wire.data import data_tail, decode_data_header, encode_data_header, split_data_frame
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]


def fuzz(data: bytes) -> None:
    """A header is refused or agrees with its payload, and can be written again."""
    payload_bytes = int.from_bytes(data[1:5], "little")
    frame, flags = data[5:], data[0] if data else 0
    if flags & 2:
        parts = split_data_frame(memoryview(frame))
        if parts.payload is not None:
            assert bytes(parts.payload) + data_tail(parts.header) == frame
        frame = parts.header
        payload_bytes = payload_bytes if parts.payload is None else len(parts.payload)
    if flags & 1:
        frame = crc32c(frame).to_bytes(4, "little") + frame
    header = decode_data_header(frame, payload_bytes)
    sizes = header.record_sizes()
    assert len(sizes) == header.count
    assert int(sizes.sum()) == payload_bytes
    assert decode_data_header(memoryview(encode_data_header(header)), payload_bytes) == header


TARGET = Target(
    fuzz=fuzz,
    raises=(RemoteProtocolError,),
    tokens=(b"\xc6\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\x9a", b"\x00\x00\x00\x80"),
)
