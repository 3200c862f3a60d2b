"""The protocol's bytes, as they were checked in: whoever changes them changes the protocol's version."""

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from emlio.checksum import crc32c
from emlio.receiver.addresses.lane_pass import LanePass
from emlio.wire.control import PROTOCOL_VERSION, ControlMessage, decode_control, encode_control
from emlio.wire.credit import Credit, decode_credit, encode_credit
from emlio.wire.data import DATA_VERSION, DataHeader, data_tail, decode_data_header, encode_data_header, header_apart

_GOLDEN: Any = json.loads((Path(__file__).parents[2] / "golden" / "wire.json").read_text(encoding="utf-8"))
_KINDS = [entry["kind"] for entry in _GOLDEN["control"]]


def test_every_kind_of_message_has_golden_bytes_of_this_version() -> None:
    assert set(_KINDS) == {kind.__name__ for kind in get_args(ControlMessage)}
    assert (_GOLDEN["protocol_version"], _GOLDEN["data_version"]) == (PROTOCOL_VERSION, DATA_VERSION)


@pytest.mark.parametrize("entry", _GOLDEN["control"], ids=_KINDS)
def test_a_control_message_has_the_bytes_it_always_had(entry: Any) -> None:
    golden = bytes.fromhex(entry["bytes"])
    message: ControlMessage = msgspec.convert(
        entry["fields"], ControlMessage, strict=False
    )  # JSON has no numbers as keys
    assert type(message).__name__ == entry["kind"]
    assert encode_control(message).hex() == entry["bytes"]
    assert decode_control(golden) == message


def test_a_credit_has_the_bytes_it_always_had() -> None:
    entry = _GOLDEN["credit"]
    credit = Credit(**entry["fields"])
    assert encode_credit(credit).hex() == entry["bytes"]
    assert decode_credit(bytes.fromhex(entry["bytes"])) == credit
    assert list(entry["fields"]) == list(Credit.__struct_fields__)


def test_a_lane_shows_what_it_always_showed() -> None:
    entry = _GOLDEN["lane"]
    lane = LanePass.of(msgspec.convert(entry["secret"], bytes), entry["number"])
    assert (lane.user.decode(), lane.token.decode(), lane.name.hex()) == (entry["user"], entry["token"], entry["name"])


def test_a_data_header_has_the_bytes_it_always_had() -> None:
    entry = _GOLDEN["data_header"]
    fields = entry["fields"]
    header = DataHeader(**{**fields, **{name: msgspec.convert(fields[name], bytes) for name in ("sizes", "crcs")}})
    head = encode_data_header(header)
    assert head.hex() == entry["bytes"]
    assert decode_data_header(head, entry["payload_bytes"]) == header
    assert header.record_sizes().tolist() == [24, 32, 272]


def test_a_data_frame_has_the_bytes_it_always_had() -> None:
    entry = _GOLDEN["data_header"]
    head, lane, sequence = bytes.fromhex(entry["bytes"]), entry["lane"], entry["lane_sequence"]
    assert data_tail(head, crc32c(head), lane, sequence).hex() == entry["tail"]
    payload = memoryview(bytes(entry["payload_bytes"]))
    assert header_apart(head, crc32c(head), payload, lane, sequence).hex() == entry["apart"]
