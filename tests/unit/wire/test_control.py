"""Limits of control messages: what is too long, too deep, cut off or foreign is refused before it costs anything."""

from typing import Any

import msgspec
import pytest

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.wire.control import (
    PROTOCOL_VERSION,
    CatalogPart,
    ControlMessage,
    Hello,
    Open,
    Opened,
    Ping,
    PlanOffer,
    PlanReply,
    Refused,
    ShardRow,
    ShardsReply,
    Welcome,
    decode_control,
    encode_control,
)
from emlio.wire.credit import Credit
from emlio.wire.limits import (
    MAX_CONTROL_BYTES,
    MAX_LANES,
    MAX_NAME_LENGTH,
    MAX_PREDICATE_CHARACTERS,
    MAX_REASON,
    MAX_SHARDS,
    NOTE_BYTES_PER_RECORDS,
    RECORD_BYTES_PER_REPLY,
    RECORDS_PER_REQUEST,
    RECORDS_PER_SIZES,
    ROWS_PER_PART,
)
from emlio.wire.questions import Absent, Answer, AskMatches, AskRecords, AskSizes, Question, RecordRow, Records, Sizes
from emlio_testing.session_pair import example_offer

_ROW = ShardRow("train", 1, 1, "d")


def _wrapped(body: bytes, version: int = PROTOCOL_VERSION) -> bytes:
    """The body in its envelope, spelled out."""
    return b"\xe3M" + bytes((version,)) + crc32c(body).to_bytes(4, "little") + body


def _hello(**changes: Any) -> Hello:
    fields: dict[str, Any] = {
        "job": "j",
        "client": "c",
        "rank": 0,
        "world_size": 1,
        "dataset": "d",
        "host": "h",
        "pid": 1,
        "software": "0",
        "lane_secret": bytes(32),
    }
    return Hello(**(fields | changes))


def _open(**changes: Any) -> Open:
    fields: dict[str, Any] = {
        "session": 1,
        "stream": 1,
        "epoch": 0,
        "origin": 0,
        "slot": 0,
        "owned": b"\x01",
        "lanes": 1,
        "credit": Credit(read_bytes=0),
    }
    return Open(**(fields | changes))


def _offer(**changes: Any) -> PlanOffer:
    return msgspec.structs.replace(example_offer(1), **changes)


def _part(rows: list[ShardRow], first: int = 0) -> CatalogPart:
    return CatalogPart(session=1, fingerprint="f", first=first, total=1, rows=rows)


def _ask(**changes: Any) -> Question:
    fields: dict[str, Any] = {"shard": "train", "first": 0, "count": 1}
    return Question(session=1, number=1, about=AskSizes(**(fields | changes)))


def _sizes(**changes: Any) -> Answer:
    fields: dict[str, Any] = {"offset": 0, "sizes": b""}
    return Answer(number=1, told=Sizes(**(fields | changes)))


def _wanted(count: int) -> Question:
    return Question(session=1, number=1, about=AskRecords(records=[RecordRow("train", 2**62 - 1)] * count))


def _records(**changes: Any) -> Answer:
    return Answer(number=1, told=Records(**({"sizes": b""} | changes)))


def _matching(predicate: str) -> Question:
    return Question(session=1, number=1, about=AskMatches(predicate=predicate))


def _absent(text: str) -> Answer:
    return Answer(number=1, told=Absent(text=text))


def _welcome(**changes: Any) -> Welcome:
    fields: dict[str, Any] = {
        "session": 1,
        "daemon": "d",
        "software": "0",
        "shards": 1,
        "records": 1,
        "missing": [],
        "missing_count": 0,
        "heartbeat_timeout_ns": 1,
        "send_buffer_bytes": 1,
        "max_lanes": 1,
    }
    return Welcome(**(fields | changes))


@pytest.mark.parametrize(
    ("largest", "too_large"),
    [
        pytest.param(_hello(dataset="x" * MAX_NAME_LENGTH), _hello(dataset="x" * (MAX_NAME_LENGTH + 1)), id="name"),
        pytest.param(_hello(rank=2**62 - 1), _hello(rank=2**62), id="count"),
        pytest.param(_hello(rank=0), _hello(rank=-1), id="negative"),
        pytest.param(_open(lanes=MAX_LANES), _open(lanes=MAX_LANES + 1), id="lanes"),
        pytest.param(_open(lanes=1), _open(lanes=0), id="no lane"),
        pytest.param(_open(pace="energy"), _open(pace="slow"), id="pace"),
        pytest.param(
            _open(owned=bytes(MAX_SHARDS // 8 + 1)), _open(owned=bytes(MAX_SHARDS // 8 + 2)), id="bits of shards"
        ),
        pytest.param(_part([_ROW] * ROWS_PER_PART), _part([_ROW] * (ROWS_PER_PART + 1)), id="rows"),
        pytest.param(_part([_ROW], MAX_SHARDS), _part([_ROW], MAX_SHARDS + 1), id="shards"),
        pytest.param(
            _part([ShardRow("x" * MAX_NAME_LENGTH, 1, 1, "d")]),
            _part([ShardRow("x" * (MAX_NAME_LENGTH + 1), 1, 1, "d")]),
            id="shard name",
        ),
        pytest.param(_part([ShardRow("x", 1, 1, "d")]), _part([ShardRow("", 1, 1, "d")]), id="no shard name"),
        pytest.param(
            _part([ShardRow("x", 2**62 - 1, 1, "d")]), _part([ShardRow("x", 2**62, 1, "d")]), id="huge number"
        ),
        pytest.param(_part([ShardRow("x", 1, 2**62 - 1, "d")]), _part([ShardRow("x", 1, 2**62, "d")]), id="huge size"),
        pytest.param(_welcome(missing=["x"] * 64), _welcome(missing=["x"] * 65), id="missing names"),
        pytest.param(_hello(), _hello(lane_secret=bytes(31)), id="short secret"),
        pytest.param(_hello(), _hello(lane_secret=bytes(33)), id="long secret"),
        pytest.param(_welcome(data_offset=65535), _welcome(data_offset=65536), id="data port"),
        pytest.param(_welcome(data_offset=-65535), _welcome(data_offset=-65536), id="data port below"),
        pytest.param(
            _open(credit=Credit(read_bytes=0, allowed_bytes=2**62 - 1)),
            _open(credit=Credit(read_bytes=0, allowed_bytes=2**62)),
            id="credit",
        ),
        pytest.param(
            Opened(stream=1, lanes=MAX_LANES), Opened(stream=1, lanes=MAX_LANES + 1), id="lanes of an open stream"
        ),
        pytest.param(Opened(stream=1, lanes=1), Opened(stream=1, lanes=0), id="no lane of an open stream"),
        pytest.param(_offer(first=_open()), _offer(first=_open(lanes=0)), id="first order"),
        pytest.param(_ask(count=1), _ask(count=0), id="sizes of nothing"),
        pytest.param(_ask(count=2**62 - 1), _ask(count=2**62), id="sizes of too many"),
        pytest.param(_ask(first=2**62 - 1), _ask(first=2**62), id="sizes from too far"),
        pytest.param(_ask(shard="x" * MAX_NAME_LENGTH), _ask(shard="x" * (MAX_NAME_LENGTH + 1)), id="shard asked for"),
        pytest.param(_wanted(RECORDS_PER_REQUEST), _wanted(RECORDS_PER_REQUEST + 1), id="records asked for"),
        pytest.param(_wanted(1), _wanted(0), id="no record asked for"),
        pytest.param(
            _records(payload=bytes(RECORD_BYTES_PER_REPLY)),
            _records(payload=bytes(RECORD_BYTES_PER_REPLY + 1)),
            id="records",
        ),
        pytest.param(
            _records(notes=bytes(NOTE_BYTES_PER_RECORDS)), _records(notes=bytes(NOTE_BYTES_PER_RECORDS + 1)), id="notes"
        ),
        pytest.param(
            _records(crcs=bytes(4 * RECORDS_PER_REQUEST)), _records(crcs=bytes(4 * RECORDS_PER_REQUEST + 1)), id="crcs"
        ),
        pytest.param(
            _matching("x" * MAX_PREDICATE_CHARACTERS), _matching("x" * (MAX_PREDICATE_CHARACTERS + 1)), id="predicate"
        ),
        pytest.param(_matching("x"), _matching(""), id="no predicate"),
        pytest.param(_absent("x" * MAX_REASON), _absent("x" * (MAX_REASON + 1)), id="reason"),
        pytest.param(_absent("x"), _absent(""), id="no reason"),
        pytest.param(_sizes(offset=2**62 - 1), _sizes(offset=-1), id="offset"),
        pytest.param(
            _sizes(sizes=bytes(4 * RECORDS_PER_SIZES)), _sizes(sizes=bytes(4 * RECORDS_PER_SIZES + 1)), id="sizes"
        ),
        pytest.param(Refused(code="c", text="x" * 16384), Refused(code="c", text="x" * 16385), id="text"),
    ],
)
def test_a_limit_is_reached_but_not_passed(largest: ControlMessage, too_large: ControlMessage) -> None:
    assert decode_control(encode_control(largest)) == largest
    with pytest.raises(RemoteProtocolError, match="must be a msgpack map of a known type"):
        decode_control(encode_control(too_large))


def test_the_largest_list_of_shards_with_the_longest_names_fits_one_message() -> None:
    row = ShardRow("x" * MAX_NAME_LENGTH, 2**62 - 1, 2**62 - 1, "d" * 128)
    message = ShardsReply(first=MAX_SHARDS, total=MAX_SHARDS, rows=[row] * ROWS_PER_PART)
    assert decode_control(encode_control(message)) == message


def test_a_message_longer_than_the_limit_is_not_even_looked_at() -> None:
    with pytest.raises(RemoteProtocolError, match=f"at most {MAX_CONTROL_BYTES} bytes, got {MAX_CONTROL_BYTES + 1}"):
        decode_control(b"\0" * (MAX_CONTROL_BYTES + 1))


@pytest.mark.parametrize(
    "opening", [b"\x91", b"\x81\xa1a", b"\x84\xa4type\xa4ping\xa1x" + b"\x91"], ids=["array", "map", "unknown"]
)
def test_a_message_nested_ten_thousand_deep_is_refused(opening: bytes) -> None:
    body = opening + opening[-1:] * 10_000 if opening[-1:] == b"\x91" else opening * 10_000
    with pytest.raises(RemoteProtocolError):
        decode_control(_wrapped(body))


def test_a_list_announced_as_four_thousand_million_items_is_refused_at_once() -> None:
    body = b"\x82\xa4type\xabshardsreply\xa4rows\xdd\xff\xff\xff\xff"
    with pytest.raises(RemoteProtocolError, match=r"length <= 4096 - at `\$.rows`"):
        decode_control(_wrapped(body))


@pytest.mark.parametrize("data", [b"", b"\xe3", b"\xe3M", b"GET / HTTP/1.1\r\n\r\n", b"\xe3N\x01\x80", b"\0" * 64])
def test_what_does_not_begin_with_the_magic_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="must begin with e34d and a version"):
        decode_control(data)


def test_every_cut_of_a_message_is_refused() -> None:
    data = encode_control(_welcome(missing=["train-00001", "train-00002"]))
    assert decode_control(data) == _welcome(missing=["train-00001", "train-00002"])
    for length in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            decode_control(data[:length])


def test_bytes_behind_a_message_are_refused() -> None:
    data = encode_control(Ping(session=1, nonce=1))
    with pytest.raises(RemoteProtocolError, match="must match its checksum"):
        decode_control(data + b"\xc0")
    with pytest.raises(RemoteProtocolError, match="trailing"):
        decode_control(_wrapped(data[7:] + b"\xc0"))


def test_a_message_with_any_bit_turned_is_refused() -> None:
    data = encode_control(Ping(session=1, nonce=1))
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        where = (
            ("must begin with", "must begin with", "uses protocol version")[bit // 8] if bit < 24 else "its checksum"
        )
        with pytest.raises(RemoteProtocolError, match=where):
            decode_control(bytes(changed))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(msgspec.msgpack.encode({"type": "hello", "job": 5}), id="a message"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xc1\xff", id="no msgpack"),
        pytest.param(b"\x91" * 10_000, id="deep"),
        pytest.param(b"\x81\xa4type\xa3\xff\xfe\xfd", id="no text"),
    ],
)
@pytest.mark.parametrize("version", [0, 1, 2, 255])
def test_another_version_is_named_whatever_it_says(version: int, body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=f"version {version}, this side version 4. Install the same release"):
        decode_control(_wrapped(body, version))
    with pytest.raises(RemoteProtocolError, match=f"version {version}, this side version 4. Install the same release"):
        decode_control(b"\xe3M" + bytes((version,)) + body)  # of a release that knew no checksum


def test_a_refusal_of_another_version_can_be_read_even_with_more_fields() -> None:
    body = msgspec.msgpack.encode({"type": "refused", "code": "version", "text": "too old", "since": [1, {"a": 2}]})
    assert decode_control(_wrapped(body, 7)) == Refused(code="version", text="too old")
    with pytest.raises(RemoteProtocolError, match="the peer uses protocol version 7"):
        decode_control(_wrapped(body, 7).replace(b"too old", b"too odd"))


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "ping", "session": 1},
        {"type": "ping", "session": 1, "nonce": "1"},
        {"type": "ping", "session": 1, "nonce": None},
        {"type": "ping", "session": 1, "nonce": 1.5},
        {"type": "pong"},
        {"type": "unknown", "session": 1},
        {"session": 1, "nonce": 1},
        {"type": "planreply", "need_catalog": 1},
    ],
)
def test_fields_that_are_missing_or_of_another_type_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_control(_wrapped(msgspec.msgpack.encode(fields)))


def test_a_stream_ordered_without_a_pace_races() -> None:
    fields = msgspec.structs.asdict(_open())
    del fields["pace"], fields["tuning"]
    assert decode_control(_wrapped(msgspec.msgpack.encode({"type": "open", **fields}))) == _open(pace="race")


def test_a_field_of_a_later_release_is_passed_over() -> None:
    body = msgspec.msgpack.encode({"type": "planreply", "need_catalog": True, "hint": "later"})
    assert decode_control(_wrapped(body)) == PlanReply(need_catalog=True)
