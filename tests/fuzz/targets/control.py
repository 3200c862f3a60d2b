"""A control message.

byte 0   bit 0: put the right envelope and checksum before what follows; bit 1: of another version
rest     the message, or its msgpack
"""

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.wire.control import PROTOCOL_VERSION, Refused, decode_control, encode_control
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]


def fuzz(data: bytes) -> None:
    """A message is refused or can be written again; of another version only refusals are read."""
    flags, frame = data[0] if data else 0, data[1:]
    version = PROTOCOL_VERSION + bool(flags & 2)
    if flags & 1:
        frame = b"\xe3M" + bytes((version,)) + crc32c(frame).to_bytes(4, "little") + frame
    message = decode_control(frame)
    assert frame[2] == PROTOCOL_VERSION or isinstance(message, Refused)
    assert decode_control(memoryview(encode_control(message))) == message


TARGET = Target(
    fuzz=fuzz,
    raises=(RemoteProtocolError,),
    tokens=(
        b"\xa4type",
        b"\xa4rows\xdd\xff\xff\xff\xff",
        b"\xa7missing",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xcf" + b"\xff" * 8,
        b"\x91" * 64,
        b"\xa2\xff\xff",
    ),
)
