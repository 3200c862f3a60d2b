"""Control messages between a rank and a daemon, and their encoding.

    2 bytes magic | 1 byte protocol version | 4 bytes CRC32C of the rest, little-endian | msgpack map with "type"

The envelope and `Refused` never change between protocol versions, so that peers of different
versions can always recognise each other.

Covers: the messages as frozen values, encoding, decoding with the checksum and every limit checked.
Does not cover: who may send what when (emlio.session), data messages (emlio.wire.data).
"""

from contextlib import suppress
from typing import Annotated, Literal

import msgspec
import numpy as np

from emlio.checksum import crc32c
from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.formats.contents import Contents, FieldType
from emlio.native import joined_checksum
from emlio.wire.contents import ContentPart
from emlio.wire.credit import Credit
from emlio.wire.kinds import Count, Digest, Message, Name, Named, Text
from emlio.wire.limits import (
    MAX_CONTROL_BYTES,
    MAX_DATASETS,
    MAX_GENERATIONS,
    MAX_LANES,
    MAX_MADE,
    MAX_OPTIONS,
    MAX_SAMPLING_CHARACTERS,
    MAX_SETTINGS_BYTES,
    MAX_SHARDS,
    ROWS_PER_PART,
)
from emlio.wire.questions import Answer, Question, StatusReply, StatusRequest
from emlio.wire.status import UserWaits
from emlio.wire.tuning import StreamTuning, StreamWork

__all__ = [
    "PROTOCOL_VERSION",
    "Answer",
    "CatalogPart",
    "Compared",
    "ControlMessage",
    "Fault",
    "Goodbye",
    "Hello",
    "Limit",
    "Made",
    "Open",
    "Opened",
    "Ping",
    "Place",
    "PlanOffer",
    "PlanReply",
    "Pong",
    "Question",
    "Refused",
    "ShardRow",
    "ShardsReply",
    "ShardsRequest",
    "StatusReply",
    "StatusRequest",
    "Stop",
    "Welcome",
    "decode_control",
    "encode_control",
    "encode_in_place",
    "payload_crc",
    "room_before",
]

PROTOCOL_VERSION = 4
_MAGIC = b"\xe3M"
_VERSION_AT = 2
_CHECKSUM = slice(3, 7)
_BODY_AT = 7
_MOST_REASON = 400

Protections = Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=8)]
ShardCount = Annotated[int, msgspec.Meta(ge=0, le=MAX_SHARDS)]
DatasetNumber = Annotated[int, msgspec.Meta(ge=0, lt=MAX_DATASETS)]
Sampling = Annotated[str, msgspec.Meta(max_length=MAX_SAMPLING_CHARACTERS)]
OptionText = Annotated[str, msgspec.Meta(max_length=256)]
Options = Annotated[dict[Name, OptionText], msgspec.Meta(max_length=MAX_OPTIONS)]
Secret = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class ShardRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One shard; both sides must see the same values."""

    name: Named
    records: Count
    size_bytes: Count
    digest: Digest


Rows = Annotated[list[ShardRow], msgspec.Meta(max_length=ROWS_PER_PART)]


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place of a rank's user in the plan: samples are counted over all ranks, as a state does."""

    epoch: Count
    begin: Count  # samples that the pass does not repeat: those consumed when it began
    reach: Count  # samples consumed by the batches handed out so far
    read: bool = False  # it has handed out more than a first look
    asks: bool = False  # the user waits for more than a limit allows
    moved: bool = False  # after no more than looks the user went to another place, with a state or an epoch
    left: tuple[Count, Count] | None = None  # an epoch that was left for another before its end, and samples of it


class Limit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The bound up to which a rank may hand out batches: `reach` samples of `epoch`, and `steps` batches more."""

    epoch: Count
    reach: Count
    steps: Count


class Made(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The loaders with one set of terms that a rank's process has, and has closed, and the farthest place of these."""

    digest: Digest
    living: Count
    closed: Count
    epoch: Count = 0
    reach: Count = 0


MadeLoaders = Annotated[list[Made], msgspec.Meta(max_length=MAX_MADE)]


class Compared(msgspec.Struct, frozen=True, array_like=True):
    """The part of an offer that is compared with other ranks' only, beside the plan.

    `options` are those that are no part of it, as users know them, `made` the other loaders of the
    process for this dataset, the latest last. `begun`: the user asked for batches before this offer.
    """

    options: Options
    made: MadeLoaders
    begun: bool = False


class Hello(Message, frozen=True, kw_only=True):
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
    process: Name | msgspec.UnsetType = msgspec.UNSET  # drawn by it: in containers several have one host name and pid
    generation: Count | msgspec.UnsetType = msgspec.UNSET  # the one that its job reads, if it knows that already
    held: Digest | msgspec.UnsetType = msgspec.UNSET  # fingerprint of the shards this daemon listed for it before


class Welcome(Message, frozen=True, kw_only=True):
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

    def contents(self) -> Contents:
        """Return how the records become features."""
        schema = {name: FieldType(*column) for name, column in self.schema.items()}
        return Contents(format=self.format, settings=self.settings, label_names=self.label_names, schema=schema)


class ShardsRequest(Message, frozen=True, kw_only=True):
    """From the rank: list the shards that you hold, from row `first` on."""

    session: Count
    first: ShardCount


class ShardsReply(Message, frozen=True, kw_only=True):
    """From the daemon: a part of the list of shards."""

    first: ShardCount
    total: ShardCount
    rows: Rows


class Open(Message, frozen=True, kw_only=True, omit_defaults=True):
    """From the rank: push the records of the `owned` shards.

    The stream begins at `slot` of `epoch` and ends before epoch `end`. `end` 0 means no end. The
    stream replaces the session's current one, if any: reopening is how every fault is recovered
    from. `credit` is the stream's initial credit. Use at most `lanes` of the rank's lanes, and fill
    messages to at most `message_bytes`, unless that is 0. `pace` is ignored; ranks no longer send it.
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
    pace: Literal["race", "energy"] = "race"
    end: Count = 0
    tuning: StreamTuning | msgspec.UnsetType = msgspec.UNSET
    times: bool = False  # headers tell when their records were read


class PlanOffer(Message, frozen=True, kw_only=True):
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
    part: DatasetNumber | msgspec.UnsetType = msgspec.UNSET  # of a mixture: the number of this session's dataset
    compared: Compared | msgspec.UnsetType = msgspec.UNSET  # with other ranks; unset: nothing is


class CatalogPart(Message, frozen=True, kw_only=True):
    """From the rank: a part of the dataset's list of shards; the last part completes the offer."""

    session: Count
    fingerprint: Digest
    first: ShardCount
    total: ShardCount
    rows: Rows


class PlanReply(Message, frozen=True, kw_only=True):
    """From the daemon: the plan's digest is the same here; or, `need_catalog`: send the catalog.

    With `need_content`, the rank must send the set of records with this digest instead.
    """

    need_catalog: bool
    need_content: Digest | msgspec.UnsetType = msgspec.UNSET


class Stop(Message, frozen=True, kw_only=True):
    """From the rank: push nothing more. The session stays."""

    session: Count


class Opened(Message, frozen=True, kw_only=True):
    """From the daemon: the stream has begun.

    It uses at most `lanes` lanes, with at most `lane_bytes` in flight (sent and not read) on each.
    """

    stream: Count
    lanes: Annotated[int, msgspec.Meta(ge=1, le=MAX_LANES)]
    lane_bytes: Count = 0


class Ping(Message, frozen=True, kw_only=True):
    """From the rank: a heartbeat. `session` 0: before a session, to measure the round trip."""

    session: Count
    nonce: Count
    place: Place | msgspec.UnsetType = msgspec.UNSET  # of the user, once it has asked for a batch
    tuning: StreamTuning | msgspec.UnsetType = msgspec.UNSET  # if set, the pong tells of the daemon's work
    waits: UserWaits | msgspec.UnsetType = msgspec.UNSET  # for the daemon's status, nothing depends on them


class Pong(Message, frozen=True, kw_only=True):
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
    limit: Limit | msgspec.UnsetType = msgspec.UNSET  # holds until the next pong; unset: none
    work: StreamWork | msgspec.UnsetType = msgspec.UNSET  # unset: there is no stream, or the daemon knows no tuning


class Fault(Message, frozen=True, kw_only=True):
    """From the daemon: the stream cannot go on, or not with this record."""

    stream: Count
    code: Name
    text: Text
    shard: Name = ""
    record: int = -1
    offset: int = -1


class Refused(Message, frozen=True, kw_only=True):
    """From the daemon: a refusal and its reason. The session, if any, is over."""

    code: Name
    text: Text


class Goodbye(Message, frozen=True, kw_only=True):
    """From either side: this session ends here."""

    session: Count
    reason: Text = ""
    place: Place | msgspec.UnsetType = msgspec.UNSET  # from the rank: as in its pings


ControlMessage = (
    Hello
    | Welcome
    | ShardsRequest
    | ShardsReply
    | Question
    | Answer
    | PlanOffer
    | CatalogPart
    | ContentPart
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


def room_before(crcs: int) -> int:
    """Return how many bytes `encode_in_place` needs at most for an answer with so many checksums."""
    return 128 + 4 * crcs


def encode_in_place(answer: Answer, memory: memoryview, first: int, crc: int | None = None) -> memoryview:
    """Return the bytes of an answer with an empty payload as its last field, which stands in memory from `first` on.

    What comes before the payload is written there before it, so that long answers are not copied. The payload's `crc` saves
    computing it.
    """
    size = len(memory) - first
    kind, digits = (0xC4, 1) if size < 1 << 8 else (0xC5, 2) if size < 1 << 16 else (0xC6, 4)
    head = _ENCODER.encode(answer)
    if head[-2:] != b"\xc4\0":
        raise LocalProtocolError(
            f"an answer must end with an empty payload to be encoded in place, got {head[-2:].hex()}"
        )
    head = head[:-2] + bytes((kind,)) + size.to_bytes(digits, "big")
    begin = first - len(head) - _BODY_AT
    memory[begin + _BODY_AT : first] = head
    of_head = crc32c(head)
    of_body = None if crc is None else _joined(of_head, crc, size)
    if of_body is None:
        of_body = crc32c(memory[first:], of_head)
    stored = of_body.to_bytes(4, "little")
    memory[begin : begin + _BODY_AT] = b"".join((_MAGIC, bytes((PROTOCOL_VERSION,)), stored))
    return memory[begin:]


def payload_crc(payload: memoryview) -> int | None:
    """Return the CRC32C of a payload that came in a message; None where it must be computed.

    It follows from that of the message, which `decode_control` has checked.
    """
    message = memoryview(memoryview(payload).obj).cast("B")
    begin = len(message) - len(payload)
    ends = [np.frombuffer(one, np.uint8)[-1:].ctypes.data for one in (message, payload)]
    if begin <= _BODY_AT or ends[0] != ends[1] or bytes(message[:_VERSION_AT]) != _MAGIC:
        return None
    behind = _joined(crc32c(message[_BODY_AT:begin]), 0, len(payload))
    return None if behind is None else behind ^ int.from_bytes(message[_CHECKSUM], "little")


def _joined(first: int, second: int, second_bytes: int) -> int | None:
    """Return the CRC32C of bytes and of these behind them; None for few."""
    return joined_checksum(np.array([first, second], np.uint32), np.array([second_bytes, second_bytes], np.int64))


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
