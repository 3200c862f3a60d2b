"""The first frame of a data message.

byte 0        bit 0: put the right checksum before what follows
bytes 1 to 4  bytes of the payload
rest          the frame
"""

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.wire.data import decode_data_header, encode_data_header
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]


def fuzz(data: bytes) -> None:
    """A header is refused or agrees with its payload, and can be written again."""
    payload_bytes = int.from_bytes(data[1:5], "little")
    frame = data[5:]
    if data[:1] and data[0] & 1:
        frame = crc32c(frame).to_bytes(4, "little") + frame
    header = decode_data_header(frame, payload_bytes)
    sizes = header.record_sizes()
    assert len(sizes) == header.count
    assert int(sizes.sum()) == payload_bytes
    assert decode_data_header(memoryview(encode_data_header(header)), payload_bytes) == header


TARGET = Target(
    fuzz=fuzz, raises=(RemoteProtocolError,), tokens=(b"\xc6\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\x9a")
)
