"""The credit message, which a rank sends on a lane.

It says how much the rank has read on this lane and how far the stream may go on.

    4 bytes CRC32C of the rest, little-endian | msgpack array, the fields of `Credit` in order

All figures are totals. So a message that is duplicated, late or lost does no harm: the next one
repeats everything.

Covers: the message, its encoding and limits. Does not cover: what a daemon may send for it
(emlio.session.credits), how much credit a rank gives (emlio.receiver.placement.grants).
"""

from typing import Final

import msgspec

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.wire.kinds import Count

__all__ = ["MAX_CREDIT_BYTES", "Credit", "decode_credit", "encode_credit"]

MAX_CREDIT_BYTES: Final = 128
"""The longest message a rank sends on a lane: the checksum, and eight integers of at most nine
bytes."""

_CHECKSUM_BYTES = 4
_VERSION: Final = 1


class Credit(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """The credit message.

    A *place* is an epoch and a slot in it; places are ordered as the stream comes to them.

    Attributes:
        read_bytes: size of all frames received on this lane since it was connected.
        stream: the stream that the other fields are about. Credit for any stream but the current
            one is ignored.
        allowed_bytes: payload bytes that the stream may have sent since it was opened.
        epoch, slot: the first place that it may not send yet.
        must_epoch, must_slot: the first place that is not needed at once. Everything before it is
            sent, however many bytes it has.
        version: of this message.
    """

    read_bytes: Count
    stream: Count = 0
    allowed_bytes: Count = 0
    epoch: Count = 0
    slot: Count = 0
    must_epoch: Count = 0
    must_slot: Count = 0
    version: Count = _VERSION


_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Credit] = msgspec.msgpack.Decoder(Credit)


def encode_credit(credit: Credit) -> bytes:
    """Return the bytes of a credit."""
    body = _ENCODER.encode(credit)
    return crc32c(body).to_bytes(_CHECKSUM_BYTES, "little") + body


def decode_credit(data: bytes | memoryview) -> Credit:
    """Return the credit in `data`; anything else raises `RemoteProtocolError`."""
    if len(data) > MAX_CREDIT_BYTES:
        raise RemoteProtocolError(f"a credit must be at most {MAX_CREDIT_BYTES} bytes, got {len(data)}")
    view = memoryview(data)
    stored, body = bytes(view[:_CHECKSUM_BYTES]), view[_CHECKSUM_BYTES:]
    if stored != crc32c(body).to_bytes(_CHECKSUM_BYTES, "little"):
        raise RemoteProtocolError("a credit must match its checksum: it was corrupted in transit, or is no credit")
    try:
        credit = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"a credit must be the msgpack array of version {_VERSION}: {error}") from error
    if credit.version != _VERSION:
        raise RemoteProtocolError(f"a credit must be of version {_VERSION}, got {credit.version}")
    return credit
