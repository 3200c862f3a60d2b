"""Control messages between a rank and a daemon, and their encoding.

    2 bytes magic | 1 byte protocol version | 4 bytes CRC32C of the rest, little-endian | msgpack map with "type"

The envelope and `Refused` never change between protocol versions, so that peers of different
versions can always recognise each other.

Covers: the messages as frozen values, encoding, decoding with the checksum and every limit checked.
Does not cover: who may send what when (emlio.session), data messages (emlio.wire.data).
"""

from contextlib import suppress
from typing import Annotated, Final, Literal

import msgspec

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.wire.credit import Credit
from emlio.wire.energy import DeviceRow, ReadingRow
from emlio.wire.kinds import Count, Digest, Name, Named, Text
from emlio.wire.limits import (
    MAX_CONTROL_BYTES,
    MAX_ENERGY_DEVICES,
    MAX_GENERATIONS,
    MAX_LANES,
    MAX_SAMPLING_CHARACTERS,
    MAX_SETTINGS_BYTES,
    MAX_SHARDS,
    MAX_STATUS_DATASETS,
    MAX_STATUS_FAILURES,
    MAX_STATUS_JOBS,
    MAX_STATUS_RANKS,
    NOTE_BYTES_PER_RECORDS,
    READINGS_PER_ENERGY,
    RECORD_BYTES_PER_REPLY,
    RECORDS_PER_REQUEST,
    RECORDS_PER_SIZES,
    ROWS_PER_PART,
)
from emlio.wire.status import DatasetStatus, FailureStatus, JobStatus, MemoryStatus, RankStatus

__all__ = [
    "ENERGY",
    "PACES",
    "PROTOCOL_VERSION",
    "RACE",
    "CatalogPart",
    "ControlMessage",
    "EnergyReply",
    "EnergyRequest",
    "Fault",
    "Goodbye",
    "Hello",
    "Open",
    "Opened",
    "Pace",
    "Ping",
    "PlanOffer",
    "PlanReply",
    "Pong",
    "RecordRow",
    "RecordsReply",
    "RecordsRequest",
    "Refused",
    "ShardRow",
    "ShardsReply",
    "ShardsRequest",
    "SizesReply",
    "SizesRequest",
    "StatusReply",
    "StatusRequest",
    "Stop",
    "Welcome",
    "decode_control",
    "encode_control",
]

PROTOCOL_VERSION = 4
RACE: Final = "race"
ENERGY: Final = "energy"
PACES: Final = (RACE, ENERGY)
_MAGIC = b"\xe3M"
_VERSION_AT = 2
_CHECKSUM = slice(3, 7)
_BODY_AT = 7
_MOST_REASON = 400

Protections = Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=8)]
ShardCount = Annotated[int, msgspec.Meta(ge=0, le=MAX_SHARDS)]
Pace = Literal["race", "energy"]
Sampling = Annotated[str, msgspec.Meta(max_length=MAX_SAMPLING_CHARACTERS)]
Secret = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=str.lower):
    """A control message; its tag is its lower-case name.

    Classes repeat `frozen` and `kw_only`: msgspec inherits only the first, type checkers neither.
    """


class ShardRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One shard; both sides must see the same values."""

    name: Named
    records: Count
    size_bytes: Count
    digest: Digest


Rows = Annotated[list[ShardRow], msgspec.Meta(max_length=ROWS_PER_PART)]


class Hello(_Message, frozen=True, kw_only=True):
    """From the rank: open a session.

    Names the rank, the dataset it wants, and the protections it accepts for data, best first. The
    names and tokens of the lanes and the keys of the streams are derived from `lane_secret`, which
    the rank draws for this hello alone.
    """

    job: Name
    client: Name
    rank: Count
    world_size: Count
    dataset: Name
    host: Name
    pid: Count
    software: Name
    lane_secret: Secret
    protections: Protections = ("clear",)
    ordinal: Count | msgspec.UnsetType = msgspec.UNSET  # loaders this process made before for the dataset and rank
    process: Name | msgspec.UnsetType = msgspec.UNSET  # drawn by it: in containers several have one host name and pid
    generation: Count | msgspec.UnsetType = msgspec.UNSET  # the one that its job reads, if it knows that already
    held: Digest | msgspec.UnsetType = msgspec.UNSET  # fingerprint of the shards this daemon listed for it before


class Welcome(_Message, frozen=True, kw_only=True):
    """From the daemon: the session, holdings, limits, data protection; all shards if they are few."""

    session: Count
    daemon: Name
    software: Name
    shards: ShardCount
    records: Count
    missing: Annotated[list[Name], msgspec.Meta(max_length=64)]
    missing_count: Count
    heartbeat_timeout_ns: Count
    send_buffer_bytes: Count
    max_lanes: Count
    data_offset: Annotated[int, msgspec.Meta(ge=-65535, le=65535)] = (
        1  # from the port of this conversation to that of the lanes
    )
    protection: Name = "clear"
    rows: Rows = []
    process: Name = ""  # drawn when the daemon starts: the same at two addresses means one daemon
    format: Name = "tfrecord"  # of the dataset's records
    settings: Annotated[bytes, msgspec.Meta(max_length=MAX_SETTINGS_BYTES)] = (
        b""  # what the format needs to decode them
    )
    label_names: dict[int, Text] = {}
    schema: dict[Name, tuple[Name, tuple[Count, ...] | None]] = {}  # columns: type and shape
    generation: Count | msgspec.UnsetType = msgspec.UNSET  # of the dataset, in this session
    generations: Annotated[list[Count], msgspec.Meta(max_length=MAX_GENERATIONS)] | msgspec.UnsetType = (
        msgspec.UNSET  # the newest ones that this daemon serves, in order
    )


class ShardsRequest(_Message, frozen=True, kw_only=True):
    """From the rank: list the shards that you hold, from row `first` on."""

    session: Count
    first: ShardCount


class ShardsReply(_Message, frozen=True, kw_only=True):
    """From the daemon: a part of the list of shards."""

    first: ShardCount
    total: ShardCount
    rows: Rows


class SizesRequest(_Message, frozen=True, kw_only=True):
    """From the rank: send sizes of a shard's records. Allowed at any time; changes nothing."""

    session: Count
    shard: Name
    first: Count
    count: Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)]


class SizesReply(_Message, frozen=True, kw_only=True):
    """From the daemon: the sizes of records, from record `first` of a shard on.

    `offset` is where that record begins in the shard's file. `sizes` has the size of each frame,
    packed as little-endian uint32; a frame too long for that, which is never sent, counts as 2^32 -
    1. It ends with the shard, with the count asked for, or with RECORDS_PER_SIZES, whichever comes
    first. If the shard is not held here or has no record `first`, `sizes` is empty and `offset` is
    0.
    """

    shard: Name
    first: Count
    offset: Count
    sizes: Annotated[bytes, msgspec.Meta(max_length=4 * RECORDS_PER_SIZES)]


class RecordRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record, by its shard and its number there."""

    shard: Name
    record: Count


class RecordsRequest(_Message, frozen=True, kw_only=True):
    """From the rank: send these records, the first one from its byte `offset` on.

    Allowed at any time; changes nothing. At most MOST_RECORD_REQUESTS may be open.
    """

    session: Count
    number: Count
    records: Annotated[list[RecordRow], msgspec.Meta(min_length=1, max_length=RECORDS_PER_REQUEST)]
    offset: Count = 0


class RecordsReply(_Message, frozen=True, kw_only=True):
    """From the daemon: the first of the requested records, or a part of the first one.

    `payload` holds them one after the other, as many whole ones as fit RECORD_BYTES_PER_REPLY. If
    the first alone does not fit, or `offset` was not 0, it holds a part of that one and nothing
    else. `sizes` and `crcs` have the whole size and the CRC32C of each, packed as little-endian
    uint32; there are no `crcs` for framed records. `notes` is the block that follows the records of
    a data message. If the first record cannot be sent, `text` says why and the rest is empty.
    """

    number: Count
    sizes: Annotated[bytes, msgspec.Meta(max_length=4 * RECORDS_PER_REQUEST)] = b""
    crcs: Annotated[bytes, msgspec.Meta(max_length=4 * RECORDS_PER_REQUEST)] = b""
    payload: Annotated[bytes, msgspec.Meta(max_length=RECORD_BYTES_PER_REPLY)] = b""
    notes: Annotated[bytes, msgspec.Meta(max_length=NOTE_BYTES_PER_RECORDS)] = b""
    code: Name = ""
    text: Text = ""


class EnergyRequest(_Message, frozen=True, kw_only=True):
    """From the rank: send the energy that your node used from `from_ns` to `to_ns`.

    The times are of the node's CLOCK_MONOTONIC. Changes nothing. An answer may end before the
    interval does; the next request then continues with the same `recording` from reading `first`
    on. The next request must wait for the answer to this one. Only a daemon whose pongs carry its
    time knows this message.
    """

    session: Count
    from_ns: Count
    to_ns: Count
    recording: Count = 0
    first: Count = 0


class EnergyReply(_Message, frozen=True, kw_only=True):
    """From the daemon: the readings of this node's recorder for the interval.

    Includes one reading before the interval and one after it, if they exist. If there are no
    readings, `absent` says why and the rest is empty. `more`: the readings end here for lack of
    room. `live`: the recorder still records, or was killed. `boot` names the boot of the node that
    its clock belongs to.
    """

    absent: Text = ""
    node: Name = ""
    boot: Name = ""
    recording: Count = 0
    interval_ns: Count = 0
    devices: Annotated[list[DeviceRow], msgspec.Meta(max_length=MAX_ENERGY_DEVICES)] = []
    readings: Annotated[list[ReadingRow], msgspec.Meta(max_length=READINGS_PER_ENERGY)] = []
    more: bool = False
    live: bool = False


class Open(_Message, frozen=True, kw_only=True, omit_defaults=True):
    """From the rank: push the records of the `owned` shards.

    The stream begins at `slot` of `epoch` and ends before epoch `end`. `end` 0 means no end. The
    stream replaces the session's current one, if any: reopening is how every fault is recovered
    from. `credit` is the stream's initial credit. Use at most `lanes` of the rank's lanes, and fill
    messages to at most `message_bytes`, unless that is 0. `pace` says whether to read as far ahead
    as there is room, or as the rank needs.
    """

    session: Count
    stream: Count
    epoch: Count
    origin: Count
    slot: Count
    owned: Annotated[bytes, msgspec.Meta(max_length=MAX_SHARDS // 8 + 1)]
    lanes: Annotated[int, msgspec.Meta(ge=1, le=MAX_LANES)]
    credit: Credit
    message_bytes: Count = 0
    pace: Pace = "race"
    end: Count = 0


class PlanOffer(_Message, frozen=True, kw_only=True):
    """From the rank: the plan it uses; agree or refuse. On agreement, start `first` at once."""

    session: Count
    fingerprint: Digest
    digest: Digest
    seed: Count
    shuffle: Name
    block_records: Count
    window_blocks: Count
    batch_size: Count
    drop_last: bool
    pad: bool
    first: Open | msgspec.UnsetType = msgspec.UNSET
    sampling: Sampling | msgspec.UnsetType = msgspec.UNSET  # the records of an epoch; unset: every record once


class CatalogPart(_Message, frozen=True, kw_only=True):
    """From the rank: a part of the dataset's list of shards; the last part completes the offer."""

    session: Count
    fingerprint: Digest
    first: ShardCount
    total: ShardCount
    rows: Rows


class PlanReply(_Message, frozen=True, kw_only=True):
    """From the daemon: the plan's digest is the same here; or, `need_catalog`: send the catalog."""

    need_catalog: bool


class Stop(_Message, frozen=True, kw_only=True):
    """From the rank: push nothing more. The session stays."""

    session: Count


class Opened(_Message, frozen=True, kw_only=True):
    """From the daemon: the stream has begun.

    It uses at most `lanes` lanes, with at most `lane_bytes` in flight (sent and not read) on each.
    """

    stream: Count
    lanes: Annotated[int, msgspec.Meta(ge=1, le=MAX_LANES)]
    lane_bytes: Count = 0


class Ping(_Message, frozen=True, kw_only=True):
    """From the rank: a heartbeat. `session` 0: before a session, to measure the round trip."""

    session: Count
    nonce: Count


class Pong(_Message, frozen=True, kw_only=True):
    """From the daemon: the answer to a ping, and what held the stream up since it was opened.

    `withheld_ns` is the part of `blocked_ns` in which the rank gave no credit. `heard_ns` and `said_ns`
    are when the ping came and the answer left, by this node's CLOCK_MONOTONIC; 0 if not given.
    """

    nonce: Count
    sent_bytes: Count = 0
    blocked_ns: Count = 0
    starved_ns: Count = 0
    heard_ns: Count = 0
    said_ns: Count = 0
    withheld_ns: Count = 0


class StatusRequest(_Message, frozen=True, kw_only=True):
    """From any client, without a session: send what you are doing. Changes nothing."""

    nonce: Count


class StatusReply(_Message, frozen=True, kw_only=True):
    """From the daemon: what it serves to whom, as far as the client may know it.

    Where there are more datasets, jobs, ranks than a list may have, it has the first ones, and of
    the ranks those that hold up the daemon first; `dataset_count` and so on tell how many there
    are. `failures` are the last ones, the newest first.
    """

    nonce: Count
    daemon: Name
    process: Name
    software: Name
    up_ns: Count
    draining: bool
    lanes: Count
    heartbeat_timeout_ns: Count
    memory: MemoryStatus
    dataset_count: Count
    job_count: Count
    rank_count: Count
    datasets: Annotated[list[DatasetStatus], msgspec.Meta(max_length=MAX_STATUS_DATASETS)]
    jobs: Annotated[list[JobStatus], msgspec.Meta(max_length=MAX_STATUS_JOBS)]
    ranks: Annotated[list[RankStatus], msgspec.Meta(max_length=MAX_STATUS_RANKS)]
    failures: Annotated[list[FailureStatus], msgspec.Meta(max_length=MAX_STATUS_FAILURES)]


class Fault(_Message, frozen=True, kw_only=True):
    """From the daemon: the stream cannot go on, or not with this record."""

    stream: Count
    code: Name
    text: Text
    shard: Name = ""
    record: int = -1
    offset: int = -1


class Refused(_Message, frozen=True, kw_only=True):
    """From the daemon: a refusal and its reason. The session, if any, is over."""

    code: Name
    text: Text


class Goodbye(_Message, frozen=True, kw_only=True):
    """From either side: this session ends here."""

    session: Count
    reason: Text = ""


ControlMessage = (
    Hello
    | Welcome
    | ShardsRequest
    | ShardsReply
    | SizesRequest
    | SizesReply
    | RecordsRequest
    | RecordsReply
    | EnergyRequest
    | EnergyReply
    | PlanOffer
    | CatalogPart
    | PlanReply
    | Open
    | Stop
    | Opened
    | Ping
    | Pong
    | StatusRequest
    | StatusReply
    | Fault
    | Refused
    | Goodbye
)

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[ControlMessage] = msgspec.msgpack.Decoder(ControlMessage)
_REFUSAL: msgspec.msgpack.Decoder[Refused] = msgspec.msgpack.Decoder(Refused)


def encode_control(message: ControlMessage) -> bytes:
    """Return the bytes of a control message."""
    body = _ENCODER.encode(message)
    return b"".join((_MAGIC, bytes((PROTOCOL_VERSION,)), crc32c(body).to_bytes(4, "little"), body))


def decode_control(data: bytes | memoryview) -> ControlMessage:
    """Return the message in `data`; anything else raises `RemoteProtocolError`."""
    view = memoryview(data)
    if len(view) > MAX_CONTROL_BYTES:
        raise RemoteProtocolError(f"a control message must be at most {MAX_CONTROL_BYTES} bytes, got {len(view)}")
    if len(view) <= _VERSION_AT or bytes(view[:_VERSION_AT]) != _MAGIC:
        raise RemoteProtocolError(
            f"a control message must begin with {_MAGIC.hex()} and a version, got {bytes(view[:4]).hex() or 'nothing'}"
        )
    version, stored, body = view[_VERSION_AT], bytes(view[_CHECKSUM]), view[_BODY_AT:]
    computed = crc32c(body).to_bytes(4, "little")
    if version != PROTOCOL_VERSION:
        # A refusal can be read whatever the version, and says more than the version number alone.
        if stored == computed:
            with suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                return _REFUSAL.decode(body)
        raise RemoteProtocolError(
            f"the peer uses protocol version {version}, this side version {PROTOCOL_VERSION}. Install the same "
            "release of emlio on both sides"
        )
    if stored != computed:
        raise RemoteProtocolError(
            f"a control message must match its checksum {stored.hex() or '(none)'}, its {len(body)} bytes have "
            f"{computed.hex()}: it was corrupted in transit"
        )
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        # The decoder's text may quote the input, so it is cut.
        reason = str(error)[:_MOST_REASON]
        raise RemoteProtocolError(f"a control message must be a msgpack map of a known type: {reason}") from None
