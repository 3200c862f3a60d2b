"""Credits as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.wire.credit import MAX_CREDIT_BYTES, Credit, decode_credit, encode_credit

COUNTS = st.integers(0, (1 << 62) - 1)
FIELDS = ("read_bytes", "stream", "allowed_bytes", "epoch", "slot", "must_epoch", "must_slot")


@given(st.builds(Credit, **dict.fromkeys(FIELDS, COUNTS), version=st.just(1)))
def test_a_credit_is_read_as_it_was_written(credit: Credit) -> None:
    data = encode_credit(credit)
    assert len(data) <= MAX_CREDIT_BYTES
    assert decode_credit(memoryview(data)) == credit


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


@given(st.binary(max_size=40))
def test_whatever_has_a_checksum_is_a_credit_or_refused(body: bytes) -> None:
    try:
        credit = decode_credit(whole(body))
    except RemoteProtocolError:
        return
    assert decode_credit(encode_credit(credit)) == credit
