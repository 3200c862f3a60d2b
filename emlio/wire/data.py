"""A data message: the records as they lie in the shard, and the header behind them.

    header:     4 bytes CRC32C of the rest, little-endian | msgpack array, the fields of `DataHeader` in order
    in one:     the payload | the header | its length, 4 bytes little-endian
    apart:      the header | 4 bytes CRC32C of the payload's ends | the header's length with its top bit set; in the lane's next
                frame the payload

Every ZeroMQ message has one frame: libzmq aborts the process when a connection and its socket end between two frames of one
message (docs/adr/0016-libzmq-assertions.md). The header stands behind the payload, so that the daemon writes it into the memory
the payload was read into. A payload that is sent from a mapped file has no such room: it comes apart. Nothing is lost within a
connection; the checksum of its ends, the first and the last 4 KiB, is there so that no defect can give it another one's header.

Covers: the header's and the tail's bytes, their checksum, their limits, the packed sizes. Does not cover: what the payload means
and its checksums (emlio.tfrecord), whether it is the message that was expected (emlio.receiver.reorder).
"""

from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.wire.limits import MAX_DATA_HEADER_BYTES, MAX_MESSAGE_RECORDS, MAX_PAYLOAD_BYTES

__all__ = [
    "DATA_VERSION",
    "DataFrame",
    "DataHeader",
    "data_tail",
    "decode_data_header",
    "encode_data_header",
    "header_apart",
    "ids_checksum",
    "split_data_frame",
    "tail_room",
]

DATA_VERSION = 2
_CHECKSUM_BYTES = 4
_LENGTH_BYTES: Final = 4
_END_BYTES: Final = 4096
_APART: Final = 1 << 31
_FIXED_TAIL_BYTES: Final = 96
"""A tail without its sizes: the checksum, an array of ten, nine integers of at most nine bytes, five bytes before the sizes, the
length."""

_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class DataHeader(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """What a data message says of itself.

    Attributes:
        version: of this header; it stays the first field for ever, and the checksum before it.
        session: the session the stream belongs to.
        stream: which opening of the session's stream this is.
        epoch: the epoch of all records in the message.
        lane: which of the stream's lanes carries it.
        lane_sequence: 0 for the lane's first message, one more for each: a gap means messages were lost.
        slot: the rank's running sample number of the first record.
        count: records in the message.
        ids_crc: CRC32C of the records' global ids as little-endian int64, as the daemon's plan has them.
        sizes: bytes each record takes in the payload, packed as little-endian uint32.
    """

    version: _Count
    session: _Count
    stream: _Count
    epoch: _Count
    lane: _Count
    lane_sequence: _Count
    slot: _Count
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_MESSAGE_RECORDS)]
    ids_crc: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
    sizes: Annotated[bytes, msgspec.Meta(max_length=4 * MAX_MESSAGE_RECORDS)]

    def record_sizes(self) -> npt.NDArray[np.int64]:
        """The sizes as numbers."""
        return np.frombuffer(self.sizes, dtype="<u4").astype(np.int64)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[DataHeader] = msgspec.msgpack.Decoder(DataHeader)


def ids_checksum(ids: npt.NDArray[np.int64]) -> int:
    """What `DataHeader.ids_crc` must be for these records."""
    return crc32c(np.ascontiguousarray(ids, dtype="<i8").data)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFrame:
    """A frame taken apart.

    Attributes:
        header: the header's bytes.
        payload: what stands before it, None where the payload is the lane's next frame.
        ends_crc: of the payload that comes apart.
    """

    header: bytes
    payload: memoryview | None
    ends_crc: int = 0

    def check_apart(self, payload: memoryview) -> None:
        """Raise `RemoteProtocolError` unless this is the payload that was to come next."""
        computed = _ends_crc(payload)
        if computed != self.ends_crc:
            raise RemoteProtocolError(
                f"a payload must follow its header: its ends must have the checksum {self.ends_crc:08x}, got {computed:08x}"
            )


def tail_room(records: int) -> int:
    """The most bytes that stand behind the payload of a message with so many records."""
    return _FIXED_TAIL_BYTES + 4 * records


def data_tail(header: bytes) -> bytes:
    """What stands behind the payload in a frame that holds both."""
    return header + len(header).to_bytes(_LENGTH_BYTES, "little")


def header_apart(header: bytes, payload: memoryview) -> bytes:
    """The whole frame before the one that holds nothing but this payload."""
    ends = _ends_crc(payload).to_bytes(_CHECKSUM_BYTES, "little")
    return b"".join((header, ends, (len(header) | _APART).to_bytes(_LENGTH_BYTES, "little")))


def _ends_crc(payload: memoryview) -> int:
    return crc32c(payload[-_END_BYTES:], crc32c(payload[:_END_BYTES]))


def split_data_frame(frame: memoryview) -> DataFrame:
    """The header's bytes and the payload in a frame that has a header; `RemoteProtocolError` where it cannot have one."""
    behind = len(frame) - _LENGTH_BYTES
    length = int.from_bytes(frame[max(behind, 0) :], "little")
    apart, length = bool(length & _APART), length & ~_APART
    if length > MAX_DATA_HEADER_BYTES:
        raise RemoteProtocolError(f"a data header must be at most {MAX_DATA_HEADER_BYTES} bytes, got {length}")
    if length > behind or (apart and length + _CHECKSUM_BYTES != behind):
        raise RemoteProtocolError(
            f"a data frame of {len(frame)} bytes must hold its header{', a checksum' if apart else ''} and 4 bytes, "
            f"{'and nothing else, ' if apart else ''}got a header of {length} bytes"
        )
    if apart:
        return DataFrame(
            header=bytes(frame[:length]), payload=None, ends_crc=int.from_bytes(frame[length:behind], "little")
        )
    begin = behind - length
    return DataFrame(header=bytes(frame[begin:behind]), payload=frame[:begin])


def encode_data_header(header: DataHeader) -> bytes:
    """The header's bytes."""
    body = _ENCODER.encode(header)
    return crc32c(body).to_bytes(_CHECKSUM_BYTES, "little") + body


def decode_data_header(data: bytes | memoryview, payload_bytes: int) -> DataHeader:
    """The header in `data`, in agreement with a payload of that size; anything else raises `RemoteProtocolError`."""
    if len(data) > MAX_DATA_HEADER_BYTES:
        raise RemoteProtocolError(f"a data header must be at most {MAX_DATA_HEADER_BYTES} bytes, got {len(data)}")
    if payload_bytes > MAX_PAYLOAD_BYTES:
        raise RemoteProtocolError(f"a payload must be at most {MAX_PAYLOAD_BYTES} bytes, got {payload_bytes}")
    view = memoryview(data)
    stored, body = bytes(view[:_CHECKSUM_BYTES]), view[_CHECKSUM_BYTES:]
    computed = crc32c(body).to_bytes(_CHECKSUM_BYTES, "little")
    if stored != computed:
        raise RemoteProtocolError(
            f"a data header must match its checksum {stored.hex() or '(none)'}, its {len(body)} bytes have "
            f"{computed.hex()}: it was changed on its way"
        )
    try:
        header = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(
            f"a data header must be the msgpack array of version {DATA_VERSION}: {error}"
        ) from error
    if header.version != DATA_VERSION:
        raise RemoteProtocolError(f"a data header must be of version {DATA_VERSION}, got {header.version}")
    if len(header.sizes) != 4 * header.count:
        raise RemoteProtocolError(
            f"a header of {header.count} records must hold {4 * header.count} bytes of sizes, got {len(header.sizes)}"
        )
    total = int(np.frombuffer(header.sizes, dtype="<u4").sum(dtype=np.int64))
    if total != payload_bytes:
        raise RemoteProtocolError(
            f"the sizes of {header.count} records must add up to the payload's {payload_bytes} bytes, got {total}"
        )
    return header
