"""Control messages: what a rank and a daemon say to each other besides data, and its bytes.

    2 bytes magic | 1 byte protocol version | 4 bytes CRC32C of the rest, little-endian | msgpack map with "type"

Covers: the messages as frozen values, encoding, decoding with the checksum and every limit checked. The envelope and `Refused`
never change from version to version, so that two versions can always tell each other apart. Does not cover: who may say what
when (emlio.session), data messages (emlio.wire.data).
"""

from contextlib import suppress
from typing import Annotated, Final, Literal

import msgspec

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.wire.energy import DeviceRow, ReadingRow
from emlio.wire.kinds import Count, Digest, Name, Named, Text
from emlio.wire.limits import (
    MAX_CONTROL_BYTES,
    MAX_ENERGY_DEVICES,
    MAX_LANES,
    MAX_SHARDS,
    READINGS_PER_ENERGY,
    RECORDS_PER_SIZES,
    ROWS_PER_PART,
)

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
    "Refused",
    "Reserve",
    "Reserved",
    "ShardRow",
    "ShardsReply",
    "ShardsRequest",
    "SizesReply",
    "SizesRequest",
    "Stop",
    "Welcome",
    "decode_control",
    "encode_control",
]

PROTOCOL_VERSION = 2
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
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=str.lower):
    """A control message; its tag is its lower-case name.

    The classes repeat `frozen` and `kw_only`: msgspec inherits only the first, type checkers neither.
    """


class ShardRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One shard as both sides must see it."""

    name: Named
    records: Count
    size_bytes: Count
    digest: Digest


Rows = Annotated[list[ShardRow], msgspec.Meta(max_length=ROWS_PER_PART)]


class Hello(_Message, frozen=True, kw_only=True):
    """Rank: who I am and which dataset I want, and how it may be protected on its way, best first. Opens a session."""

    job: Name
    client: Name
    rank: Count
    world_size: Count
    dataset: Name
    host: Name
    pid: Count
    software: Name
    protections: Protections = ("clear",)
    ordinal: Count | msgspec.UnsetType = msgspec.UNSET  # loaders this process made before for the dataset and rank
    process: Name | msgspec.UnsetType = msgspec.UNSET  # drawn by it: in containers several have one host name and pid


class Welcome(_Message, frozen=True, kw_only=True):
    """Daemon: the session, what is held here, this side's limits, how data will be protected; all shards if they are few."""

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
    protection: Name = "clear"
    rows: Rows = []
    process: Name = ""  # drawn when the daemon starts: addresses at which it is the same lead to one daemon


class ShardsRequest(_Message, frozen=True, kw_only=True):
    """Rank: the shards you hold, from row `first`."""

    session: Count
    first: ShardCount


class ShardsReply(_Message, frozen=True, kw_only=True):
    """Daemon: a part of the list of shards."""

    first: ShardCount
    total: ShardCount
    rows: Rows


class SizesRequest(_Message, frozen=True, kw_only=True):
    """Rank: how long the records of a shard are, from record `first` on. Allowed at any time, and changes nothing."""

    session: Count
    shard: Name
    first: Count
    count: Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)]


class SizesReply(_Message, frozen=True, kw_only=True):
    """Daemon: where record `first` begins in the shard's file, and the sizes of its frame and of those after it.

    `sizes` is packed as little-endian uint32; a frame too long for that, which is never sent, counts as 2^32 - 1. It ends
    with the shard, with the count asked for, or with RECORDS_PER_SIZES, whichever comes first. It is empty, and `offset`
    0, where the shard is not held here or has no record `first`.
    """

    shard: Name
    first: Count
    offset: Count
    sizes: Annotated[bytes, msgspec.Meta(max_length=4 * RECORDS_PER_SIZES)]


class EnergyRequest(_Message, frozen=True, kw_only=True):
    """Rank: what your node used from `from_ns` to `to_ns`, by its CLOCK_MONOTONIC. Changes nothing.

    An answer may end before the stretch does; the next question goes on with the same `recording` from reading `first` on. Only
    a daemon whose pongs tell its time knows this message. The next question must wait for the answer to this one.
    """

    session: Count
    from_ns: Count
    to_ns: Count
    recording: Count = 0
    first: Count = 0


class EnergyReply(_Message, frozen=True, kw_only=True):
    """Daemon: what the recorder on my node has of that stretch, with a reading before and one after it where there are such.

    Where there is nothing, `absent` says why, and the rest is empty. With `more` the readings end here for want of room; with
    `live` the recorder still records, or was killed. `boot` says which start of the node its clock belongs to.
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


class PlanOffer(_Message, frozen=True, kw_only=True):
    """Rank: the plan I work by; agree or refuse."""

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


class CatalogPart(_Message, frozen=True, kw_only=True):
    """Rank: a part of the list of all shards of the dataset, wherever they lie. The last part completes the offer."""

    session: Count
    fingerprint: Digest
    first: ShardCount
    total: ShardCount
    rows: Rows


class PlanReply(_Message, frozen=True, kw_only=True):
    """Daemon: the same digest came out here; or, with `need_catalog`, send the catalog first."""

    need_catalog: bool


class Open(_Message, frozen=True, kw_only=True, omit_defaults=True):
    """Rank: push to me the records of `owned` shards, from `slot` of `epoch` on, up to epoch `end`; for ever where that is 0.

    It replaces the session's stream, if there is one: opening again is how everything is recovered. The pace says whether to
    read as far ahead as there is room, or no further than I need.
    """

    session: Count
    stream: Count
    epoch: Count
    origin: Count
    slot: Count
    owned: Annotated[bytes, msgspec.Meta(max_length=MAX_SHARDS // 8 + 1)]
    lanes: Annotated[int, msgspec.Meta(ge=1, le=MAX_LANES)]
    pace: Pace = "race"
    end: Count = 0


class Reserve(_Message, frozen=True, kw_only=True):
    """Rank: bind so many lanes for my first stream now, while I ask for shards and offer my plan.

    It may follow the hello at once, so `session` may be 0. Once in a session, before the first `Open`, which gets the lanes if it
    asks for as many as there are.
    """

    session: Count
    lanes: Annotated[int, msgspec.Meta(ge=1, le=MAX_LANES)]


class Reserved(_Message, frozen=True, kw_only=True):
    """Daemon: connect a PULL to each of these ports; the first stream will be theirs, if it is opened soon.

    Without ports none can be had now, which changes nothing else. The secret is the one that stream's `Opened` repeats.
    """

    session: Count
    ports: Annotated[list[Port], msgspec.Meta(max_length=MAX_LANES)]
    secret: Annotated[bytes, msgspec.Meta(max_length=32)] = b""


class Stop(_Message, frozen=True, kw_only=True):
    """Rank: push nothing more; the session stays."""

    session: Count


class Opened(_Message, frozen=True, kw_only=True):
    """Daemon: connect a PULL to each of these ports. What admits you there, and the lanes' keys, follow from the secret.

    It is empty where lanes ask for the rank's own key.
    """

    stream: Count
    ports: Annotated[list[Port], msgspec.Meta(min_length=1, max_length=MAX_LANES)]
    secret: Annotated[bytes, msgspec.Meta(max_length=32)] = b""


class Ping(_Message, frozen=True, kw_only=True):
    """Rank: I live. `session` may be 0 before there is one; then it measures the round trip only."""

    session: Count
    nonce: Count


class Pong(_Message, frozen=True, kw_only=True):
    """Daemon: so do I; and what held the stream up since it was opened.

    `heard_ns` and `said_ns` are when the ping was heard and the answer given, by this node's CLOCK_MONOTONIC; 0 where not told.
    """

    nonce: Count
    sent_bytes: Count = 0
    blocked_ns: Count = 0
    starved_ns: Count = 0
    heard_ns: Count = 0
    said_ns: Count = 0


class Fault(_Message, frozen=True, kw_only=True):
    """Daemon: the stream cannot go on, or not with this record."""

    stream: Count
    code: Name
    text: Text
    shard: Name = ""
    record: int = -1
    offset: int = -1


class Refused(_Message, frozen=True, kw_only=True):
    """Daemon: no, and why. The session, if there was one, is over."""

    code: Name
    text: Text


class Goodbye(_Message, frozen=True, kw_only=True):
    """Either side: this session ends here."""

    session: Count
    reason: Text = ""


ControlMessage = (
    Hello
    | Welcome
    | ShardsRequest
    | ShardsReply
    | SizesRequest
    | SizesReply
    | EnergyRequest
    | EnergyReply
    | PlanOffer
    | CatalogPart
    | PlanReply
    | Open
    | Stop
    | Opened
    | Reserve
    | Reserved
    | Ping
    | Pong
    | Fault
    | Refused
    | Goodbye
)

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[ControlMessage] = msgspec.msgpack.Decoder(ControlMessage)
_REFUSAL: msgspec.msgpack.Decoder[Refused] = msgspec.msgpack.Decoder(Refused)


def encode_control(message: ControlMessage) -> bytes:
    """The bytes of a control message."""
    body = _ENCODER.encode(message)
    return b"".join((_MAGIC, bytes((PROTOCOL_VERSION,)), crc32c(body).to_bytes(4, "little"), body))


def decode_control(data: bytes | memoryview) -> ControlMessage:
    """The message in `data`; anything else raises `RemoteProtocolError`."""
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
        # A refusal can be read whatever the version; it says more than the number alone.
        if stored == computed:
            with suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                return _REFUSAL.decode(body)
        raise RemoteProtocolError(
            f"the peer speaks protocol version {version}, this side version {PROTOCOL_VERSION}: "
            "install the same release of emlio on both sides"
        )
    if stored != computed:
        raise RemoteProtocolError(
            f"a control message must match its checksum {stored.hex() or '(none)'}, its {len(body)} bytes have "
            f"{computed.hex()}: it was changed on its way"
        )
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        # What came may be repeated in the reason, whatever its length.
        reason = str(error)[:_MOST_REASON]
        raise RemoteProtocolError(f"a control message must be a msgpack map of a known type: {reason}") from None
