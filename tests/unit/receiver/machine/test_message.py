"""A stream's messages, opened: those of the stream, each once; those of former ones are dropped; all others are an error."""

from typing import Any

import numpy as np
import pytest

from emlio.errors import RemoteProtocolError
from emlio.receiver.machine.message import StreamReader
from emlio.wire.data import DATA_VERSION, DataFrame, DataHeader, encode_data_header
from emlio.wire.seal import CIPHERS, SECRET_BYTES, TAG_BYTES, StreamSeal

RECORDS = bytes(range(100))
SECRET = bytes(range(SECRET_BYTES))


def reader(cipher: str = "", *, stream: int = 2) -> StreamReader:
    seal = StreamSeal(cipher=cipher, secret=SECRET, session=7, stream=stream) if cipher else None
    return StreamReader(session=7, stream=stream, seal=seal, label="daemon store1")


def message(cipher: str = "", number: int = 0, **changes: Any) -> tuple[DataFrame, memoryview]:
    """What a daemon sends: sealed for the stream that its header names."""
    fields: dict[str, Any] = {"session": 7, "stream": 2, "number": number, "count": 2} | changes
    sizes = np.array([40, 60], "<u4").tobytes()
    header = DataHeader(version=DATA_VERSION, epoch=0, slot=0, ids_crc=0, sizes=sizes, **fields)
    head, payload = encode_data_header(header), RECORDS
    if cipher:
        sealed = bytearray(len(RECORDS) + TAG_BYTES)
        seal = StreamSeal(cipher=cipher, secret=SECRET, session=header.session, stream=header.stream)
        seal.seal(number, head, RECORDS, sealed)
        payload = bytes(sealed)
    return DataFrame(header=head, payload=None, lane=0, lane_sequence=0), memoryview(bytearray(payload))


def opened(stream: StreamReader, frame: DataFrame, payload: memoryview) -> bytes | None:
    found = stream.open(frame, payload)
    return None if found is None else bytes(found.payload)


@pytest.mark.parametrize("cipher", ["", *CIPHERS])
def test_a_message_is_handed_on_with_its_records_and_their_sizes(cipher: str) -> None:
    found = reader(cipher).open(*message(cipher))
    assert found is not None
    assert bytes(found.payload) == RECORDS
    assert found.sizes.tolist() == [40, 60]
    assert (found.header.stream, found.header.number) == (2, 0)


@pytest.mark.parametrize("cipher", ["", *CIPHERS])
def test_messages_of_former_streams_are_dropped_without_a_look_at_their_payloads(cipher: str) -> None:
    stream = reader(cipher, stream=3)
    frame, payload = message(cipher, stream=1)
    payload[:] = bytes(len(payload))
    for _ in range(2):
        assert stream.open(frame, payload) is None
    assert opened(stream, *message(cipher, stream=3)) == RECORDS, "their numbers are not its own"


@pytest.mark.parametrize("other", [{"session": 8}, {"session": 6}, {"session": 6, "stream": 1}, {"stream": 3}])
def test_what_was_never_ordered_is_an_error(other: dict[str, int]) -> None:
    with pytest.raises(RemoteProtocolError, match=r"daemon store1: a message must be of \(session, stream\) \(7, 2\)"):
        reader().open(*message(**other))


@pytest.mark.parametrize("cipher", ["", *CIPHERS])
def test_a_number_comes_once(cipher: str) -> None:
    stream = reader(cipher)
    for number in (3, 0, 1):
        assert opened(stream, *message(cipher, number)) == RECORDS
    for number in (0, 3):
        with pytest.raises(RemoteProtocolError, match=f"message {number} was repeated"):
            stream.open(*message(cipher, number))
    assert opened(stream, *message(cipher, 2)) == RECORDS


@pytest.mark.parametrize("cipher", CIPHERS)
def test_what_cannot_be_opened_takes_no_number(cipher: str) -> None:
    stream = reader(cipher)
    frame, payload = message(cipher)
    payload[0] ^= 1
    with pytest.raises(RemoteProtocolError, match="failed authentication"):
        stream.open(frame, payload)
    assert opened(stream, *message(cipher)) == RECORDS


@pytest.mark.parametrize("cipher", CIPHERS)
def test_what_was_sealed_for_another_stream_or_not_at_all_is_no_message_of_this_one(cipher: str) -> None:
    (frame, _), (_, payload) = message(cipher), message(cipher, stream=1)
    with pytest.raises(RemoteProtocolError, match="failed authentication"):
        reader(cipher).open(frame, payload)
    with pytest.raises(RemoteProtocolError, match="must add up to the payload's 84 bytes, got 100"):
        reader(cipher).open(*message())


def test_a_payload_too_short_for_a_tag_is_refused() -> None:
    frame, _ = message(CIPHERS[0])
    for size in (0, TAG_BYTES - 1):
        with pytest.raises(RemoteProtocolError):
            reader(CIPHERS[0]).open(frame, memoryview(bytearray(size)))
