"""Credits as bytes."""

import pytest

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.wire.credit import MAX_CREDIT_BYTES, Credit, decode_credit, encode_credit


def whole(body: bytes) -> bytes:
    return crc32c(body).to_bytes(4, "little") + body


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "must match its checksum"),
        (b"\0" * 3, "must match its checksum"),
        (bytes(MAX_CREDIT_BYTES + 1), "at most 128 bytes, got 129"),
        (encode_credit(Credit(read_bytes=1))[:-1], "must match its checksum"),
        (whole(b""), "msgpack array of version 1"),
        (whole(b"\x80"), "msgpack array of version 1"),
        (whole(b"\x98\xff" + bytes(6) + b"\1"), ">= 0"),
        (whole(b"\x98" + bytes(7) + b"\2"), "must be of version 1, got 2"),
        (whole(b"\xdd\xff\xff\xff\xff"), "msgpack array of version 1"),
    ],
)
def test_what_is_no_credit_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says):
        decode_credit(data)
