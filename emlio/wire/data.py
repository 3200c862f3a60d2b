"""Data messages: records as stored in their files, a header behind them, and the stamp of the lane.

    header:     msgpack array, the fields of `DataHeader` in order
    stamp:      4 bytes lane | 8 bytes number in the lane | 4 bytes CRC32C of header, lane and number | 4 bytes header's length
    in one:     the payload | the header | the stamp
    apart:      the header | 4 bytes CRC32C of the payload's ends | the stamp, its length with the top bit set
                and in the lane's next frame the payload

All numbers of the stamp are little-endian. The header is made, and the payload sealed with it,
before the lane is chosen. The stamp is made when the message leaves.

Every ZeroMQ message has one frame: libzmq aborts the process when a connection and its socket end
between two frames of one message (docs/internals/decisions/libzmq.md). The header stands behind the
payload, so that the daemon can write it into the memory that the payload was read into. A payload
sent from a mapped file has no such room, so it travels apart. Nothing is lost within a connection;
the checksum of the payload's ends, its first and last 4 KiB, guards against a defect that pairs a
payload with another header.

The payload is the records, one after the other, and behind them the notes on them, if the format
has any (emlio.formats.notes). Records that are framed bring their own checksums; the checksums of
others are in the header.

Covers: the bytes of the header and the tail, their checksum and limits, the packed sizes. Does not
cover: the meaning of the payload and its checksums (emlio.tfrecord), whether the message is the
expected one (emlio.receiver.placement.reorder).
"""

from struct import Struct
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
    "TimedHeader",
    "data_tail",
    "decode_data_header",
    "encode_data_header",
    "header_apart",
    "ids_checksum",
    "split_data_frame",
    "tail_room",
]

DATA_VERSION = 4
_CHECKSUM_BYTES: Final = 4
_END_BYTES: Final = 4096
_APART: Final = 1 << 31

_PLACE: Final = Struct("<IQ")
"""Lane, and number in the lane."""

_STAMP: Final = Struct("<IQII")
"""Lane, number, checksum, the header's length."""

_FIXED_TAIL_BYTES: Final = 1 + 9 * 9 + 2 * 5 + 2 * 9 + _STAMP.size
"""A tail without sizes and checksums: an array of thirteen, nine integers of at most nine bytes, five
bytes before sizes and checksums each, two times, the stamp."""

_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class DataHeader(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """The header of a data message.

    Attributes:
        version: of this header; it will always stay the first field.
        session: the session the stream belongs to.
        stream: the stream's number in the session.
        number: 0 for the stream's first message, then counting up, in the order in which they were
            read.
        epoch: the epoch of all records in the message.
        slot: the rank's running sample number of the first record.
        count: records in the message.
        ids_crc: CRC32C of the records' global ids as little-endian int64, as the daemon's plan has
            them.
        sizes: bytes each record takes in the payload, packed as little-endian uint32.
        crcs: CRC32C of each record, packed as little-endian uint32; empty if records are framed.
        notes: the bytes of the notes behind the records.
    """

    version: _Count
    session: _Count
    stream: _Count
    number: _Count
    epoch: _Count
    slot: _Count
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_MESSAGE_RECORDS)]
    ids_crc: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
    sizes: Annotated[bytes, msgspec.Meta(max_length=4 * MAX_MESSAGE_RECORDS)]
    crcs: Annotated[bytes, msgspec.Meta(max_length=4 * MAX_MESSAGE_RECORDS)] = b""
    notes: _Count = 0

    def record_sizes(self) -> npt.NDArray[np.int64]:
        """Return the sizes as an array of numbers."""
        return np.frombuffer(self.sizes, dtype="<u4").astype(np.int64)

    def record_crcs(self) -> npt.NDArray[np.uint32]:
        """Return the checksums as an array of numbers."""
        return np.frombuffer(self.crcs, dtype="<u4")


class TimedHeader(DataHeader, frozen=True, array_like=True, kw_only=True, gc=False):
    """A header that tells when the records were read, by the daemon's CLOCK_MONOTONIC, for a rank that asked for it.

    Attributes:
        read_from_ns, read_to_ns: the times.
    """

    read_from_ns: _Count = 0
    read_to_ns: _Count = 0


_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[DataHeader] = msgspec.msgpack.Decoder(DataHeader)
_TIMED: msgspec.msgpack.Decoder[TimedHeader] = msgspec.msgpack.Decoder(TimedHeader)
_THIRTEEN: Final = b"\x9d"
"""The first byte of a header with times: an array of thirteen."""


def ids_checksum(ids: npt.NDArray[np.int64]) -> int:
    """Return the value that `DataHeader.ids_crc` must have for these records."""
    return crc32c(np.ascontiguousarray(ids, dtype="<i8").data)


class DataFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A frame, split into its parts.

    Attributes:
        header: the header's bytes.
        lane: the lane that the sender stamped it for.
        lane_sequence: 0 for the lane's first message, then counting up: a gap means messages were
            lost.
        payload: the bytes before the header; None if the payload is the lane's next frame.
        ends_crc: checksum of the ends of a payload that comes apart.
    """

    header: bytes
    lane: int
    lane_sequence: int
    payload: memoryview | None
    ends_crc: int = 0

    def check_apart(self, payload: memoryview) -> None:
        """Raise `RemoteProtocolError` unless this is the payload that belongs to the header."""
        computed = _ends_crc(payload)
        if computed != self.ends_crc:
            raise RemoteProtocolError(
                f"a payload must follow its header: its ends must have the checksum {self.ends_crc:08x}, got {computed:08x}"
            )


def tail_room(records: int) -> int:
    """Return the most bytes that follow the payload of a message with so many records."""
    return _FIXED_TAIL_BYTES + 8 * records


def data_tail(header: bytes, header_crc: int, lane: int, sequence: int) -> bytes:
    """Return the bytes behind the payload in a frame that holds both header and payload.

    Args:
        header: the header's bytes.
        header_crc: their CRC32C, computed once for all lanes that the message is offered to.
        lane: the lane that takes the message.
        sequence: the message's number in that lane.
    """
    return header + _STAMP.pack(lane, sequence, _stamp_crc(header_crc, lane, sequence), len(header))


def header_apart(header: bytes, header_crc: int, payload: memoryview, lane: int, sequence: int) -> bytes:
    """Return the whole frame that precedes a frame with only this payload; see `data_tail`."""
    ends = _ends_crc(payload).to_bytes(_CHECKSUM_BYTES, "little")
    stamp = _STAMP.pack(lane, sequence, _stamp_crc(header_crc, lane, sequence), len(header) | _APART)
    return b"".join((header, ends, stamp))


def _stamp_crc(header_crc: int, lane: int, sequence: int) -> int:
    return crc32c(_PLACE.pack(lane, sequence), header_crc)


def _ends_crc(payload: memoryview) -> int:
    return crc32c(payload[-_END_BYTES:], crc32c(payload[:_END_BYTES]))


def split_data_frame(frame: memoryview) -> DataFrame:
    """Return the header's bytes, the payload and the stamp of a frame that has a header.

    Raises:
        RemoteProtocolError: the frame cannot hold them, or header and stamp do not match the
            stamp's checksum.
    """
    behind = len(frame) - _STAMP.size
    if behind < 0:
        raise RemoteProtocolError(
            f"a data frame must have a stamp of {_STAMP.size} bytes, got {len(frame)} bytes in all"
        )
    lane, sequence, stored, length = _STAMP.unpack_from(frame, behind)
    apart, length = bool(length & _APART), length & ~_APART
    if length > MAX_DATA_HEADER_BYTES:
        raise RemoteProtocolError(f"a data header must be at most {MAX_DATA_HEADER_BYTES} bytes, got {length}")
    if length > behind or (apart and length + _CHECKSUM_BYTES != behind):
        raise RemoteProtocolError(
            f"a data frame of {len(frame)} bytes must hold its header{', a checksum' if apart else ''} and a stamp, "
            f"{'and nothing else, ' if apart else ''}got a header of {length} bytes"
        )
    begin = 0 if apart else behind - length
    header = bytes(frame[begin : begin + length])
    computed = _stamp_crc(crc32c(header), lane, sequence)
    if stored != computed:
        raise RemoteProtocolError(
            f"a data header and its stamp must match the checksum {stored:08x}, these {length} bytes, lane {lane} "
            f"and number {sequence} have {computed:08x}: they were corrupted in transit"
        )
    if apart:
        ends_crc = int.from_bytes(frame[length:behind], "little")
        return DataFrame(header=header, lane=lane, lane_sequence=sequence, payload=None, ends_crc=ends_crc)
    return DataFrame(header=header, lane=lane, lane_sequence=sequence, payload=frame[:begin])


def encode_data_header(header: DataHeader) -> bytes:
    """Return the header's bytes."""
    return _ENCODER.encode(header)


def decode_data_header(data: bytes | memoryview, payload_bytes: int) -> DataHeader:
    """Return the header in `data`, checked against a payload of that size.

    Anything else raises `RemoteProtocolError`.
    """
    if len(data) > MAX_DATA_HEADER_BYTES:
        raise RemoteProtocolError(f"a data header must be at most {MAX_DATA_HEADER_BYTES} bytes, got {len(data)}")
    if payload_bytes > MAX_PAYLOAD_BYTES:
        raise RemoteProtocolError(f"a payload must be at most {MAX_PAYLOAD_BYTES} bytes, got {payload_bytes}")
    try:
        header = (_TIMED if data[:1] == _THIRTEEN else _DECODER).decode(data)
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
    if len(header.crcs) not in (0, len(header.sizes)):
        raise RemoteProtocolError(
            f"a header of {header.count} records must hold {4 * header.count} bytes of checksums or none, got "
            f"{len(header.crcs)}"
        )
    total = int(np.frombuffer(header.sizes, dtype="<u4").sum(dtype=np.int64))
    if total + header.notes != payload_bytes:
        raise RemoteProtocolError(
            f"the sizes of {header.count} records and {header.notes} bytes of notes must add up to the payload's "
            f"{payload_bytes} bytes, got {total + header.notes}"
        )
    return header
