"""The protocol's bytes, as they were checked in: whoever changes them changes the protocol's version."""

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from emlio.wire.control import PROTOCOL_VERSION, ControlMessage, decode_control, encode_control
from emlio.wire.data import DATA_VERSION, DataHeader, data_tail, decode_data_header, encode_data_header, header_apart

_GOLDEN: Any = json.loads((Path(__file__).parent.parent / "golden" / "wire.json").read_text(encoding="utf-8"))
_KINDS = [entry["kind"] for entry in _GOLDEN["control"]]


def test_every_kind_of_message_has_golden_bytes_of_this_version() -> None:
    assert set(_KINDS) == {kind.__name__ for kind in get_args(ControlMessage)}
    assert (_GOLDEN["protocol_version"], _GOLDEN["data_version"]) == (PROTOCOL_VERSION, DATA_VERSION)


@pytest.mark.parametrize("entry", _GOLDEN["control"], ids=_KINDS)
def test_a_control_message_has_the_bytes_it_always_had(entry: Any) -> None:
    golden = bytes.fromhex(entry["bytes"])
    message: ControlMessage = msgspec.convert(entry["fields"], ControlMessage)
    assert type(message).__name__ == entry["kind"]
    assert encode_control(message).hex() == entry["bytes"]
    assert decode_control(golden) == message


def test_a_data_header_has_the_bytes_it_always_had() -> None:
    entry = _GOLDEN["data_header"]
    header = DataHeader(**{**entry["fields"], "sizes": msgspec.convert(entry["fields"]["sizes"], bytes)})
    assert encode_data_header(header).hex() == entry["bytes"]
    assert decode_data_header(bytes.fromhex(entry["bytes"]), entry["payload_bytes"]) == header
    assert header.record_sizes().tolist() == [24, 32, 272]
    assert data_tail(encode_data_header(header)).hex() == entry["tail"]
    assert header_apart(encode_data_header(header), memoryview(bytes(entry["payload_bytes"]))).hex() == entry["apart"]
