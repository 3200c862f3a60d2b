"""What a rank takes off its lanes: each message of the stream once, as it was made, over the lane that it was stamped for."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.receiver.machine.lane_set import LaneReader
from emlio.receiver.machine.message import Message as Received
from emlio.receiver.machine.message import StreamReader
from emlio.wire.data import DATA_VERSION, DataHeader, data_tail, encode_data_header, header_apart
from emlio.wire.seal import CIPHERS, SECRET_BYTES, TAG_BYTES, StreamSeal

SECRET = bytes(range(SECRET_BYTES))
STAMP = 20
WAYS = ["", *CIPHERS]


def _records(number: int) -> bytes:
    return bytes((number,)) * 100


class Message:
    """A message as its daemon keeps it until a lane takes it."""

    def __init__(self, number: int, cipher: str, /, **changes: int) -> None:
        fields: dict[str, Any] = {"version": DATA_VERSION, "session": 7, "stream": 2, "number": number, "epoch": 0}
        fields |= {"slot": number, "count": 1, "ids_crc": 0, "sizes": np.array([100], "<u4").tobytes()}
        self.head = encode_data_header(DataHeader(**(fields | changes)))
        self.payload = _records(number)
        if cipher:
            sealed = bytearray(len(self.payload) + TAG_BYTES)
            _seal(cipher).seal(number, self.head, self.payload, sealed)
            self.payload = bytes(sealed)

    def stamped(self, lane: int, sequence: int) -> bytes:
        """The frame for a lane, with a right-looking stamp."""
        return self.payload + data_tail(self.head, crc32c(self.head), lane, sequence)

    def apart(self, lane: int, sequence: int) -> list[bytes]:
        """The two frames of a message from a mapped file."""
        return [header_apart(self.head, crc32c(self.head), memoryview(self.payload), lane, sequence), self.payload]


def _seal(cipher: str) -> StreamSeal:
    return StreamSeal(cipher=cipher, secret=SECRET, session=7, stream=2)


class Read:
    """A lane that is read for the stream, and the frames that it brings."""

    def __init__(self, lane_reader: LaneReader, stream: StreamReader, frames: Sequence[bytes]) -> None:
        self.lane_reader = lane_reader
        self._stream = stream
        self._frames = iter(frames)

    def read(self) -> Received | None:
        """The next message of the stream; None where no whole one is there."""
        for frame in self._frames:
            # In memory that may be written, as libzmq's is.
            message = self.lane_reader.take(memoryview(bytearray(frame)), self._stream)
            if message is not None:
                return message
        return None


def _lane_readers(cipher: str, *lanes: Sequence[bytes]) -> list[Read]:
    seal = _seal(cipher) if cipher else None
    stream = StreamReader(session=7, stream=2, seal=seal, label="daemon store1")
    return [Read(LaneReader(lane, f"daemon store1 lane {lane}"), stream, frames) for lane, frames in enumerate(lanes)]


def _read(lane_reader: Read) -> int:
    """The number of the next message, whose records must be its own."""
    message = lane_reader.read()
    assert message is not None
    assert message.payload == _records(message.header.number)
    return message.header.number


def _flipped(frame: bytes, at: int) -> bytes:
    return frame[:at] + bytes((frame[at] ^ 1,)) + frame[at + 1 :]


@pytest.mark.parametrize("cipher", WAYS)
def test_messages_come_over_their_lanes_in_any_order(cipher: str) -> None:
    zero, one, two, three = (Message(number, cipher) for number in range(4))
    left, right = _lane_readers(
        cipher, [one.stamped(0, 0), three.stamped(0, 1)], [zero.stamped(1, 0), two.stamped(1, 1)]
    )
    assert [_read(left), _read(left), _read(right), _read(right)] == [1, 3, 0, 2]
    assert left.read() is None


@pytest.mark.parametrize("cipher", WAYS)
def test_no_byte_of_a_stamp_or_a_header_can_be_changed(cipher: str) -> None:
    frame = Message(0, cipher).stamped(0, 0)
    for at in range(len(frame) - STAMP - len(Message(0, cipher).head), len(frame)):
        (lane_reader,) = _lane_readers(cipher, [_flipped(frame, at)])
        with pytest.raises(RemoteProtocolError):
            lane_reader.read()


@pytest.mark.parametrize("cipher", CIPHERS)
def test_no_byte_of_a_sealed_payload_can_be_changed(cipher: str) -> None:
    frame = Message(0, cipher).stamped(0, 0)
    for at in range(100 + TAG_BYTES):
        (lane_reader,) = _lane_readers(cipher, [_flipped(frame, at)])
        with pytest.raises(RemoteProtocolError, match="message 0 of a stream failed authentication"):
            lane_reader.read()


@pytest.mark.parametrize("cipher", CIPHERS)
def test_a_header_that_was_changed_opens_nothing_even_with_a_right_stamp(cipher: str) -> None:
    honest = Message(0, cipher)
    for changes in ({"number": 1}, {"epoch": 1}, {"slot": 1}, {"ids_crc": 1}):
        forged = Message(0, cipher, **changes)
        forged.payload = honest.payload
        lane_reader, other = _lane_readers(cipher, [forged.stamped(0, 0)], [Message(1, cipher).stamped(1, 0)])
        with pytest.raises(RemoteProtocolError, match="failed authentication"):
            lane_reader.read()
        assert _read(other) == 1, "a number that nobody sealed is not taken"


@pytest.mark.parametrize("cipher", CIPHERS)
def test_payloads_cannot_be_exchanged(cipher: str) -> None:
    one, other = Message(0, cipher), Message(1, cipher)
    one.payload, other.payload = other.payload, one.payload
    for message in (one, other):
        (lane_reader,) = _lane_readers(cipher, [message.stamped(0, 0)])
        with pytest.raises(RemoteProtocolError, match="failed authentication"):
            lane_reader.read()


@pytest.mark.parametrize("cipher", WAYS)
def test_messages_that_change_lanes_are_refused_as_they_are(cipher: str) -> None:
    here, there = Message(0, cipher).stamped(0, 0), Message(1, cipher).stamped(1, 0)
    for lane_reader in _lane_readers(cipher, [there], [here]):
        with pytest.raises(
            RemoteProtocolError, match=r"lane [01]: a message must be stamped for this lane, got one for lane [01]"
        ):
            lane_reader.read()


@pytest.mark.parametrize("cipher", WAYS)
def test_messages_that_change_lanes_with_right_stamps_are_what_their_daemon_made(cipher: str) -> None:
    """The stamp is not authenticated: it decides nothing but what is missing."""
    left, right = _lane_readers(cipher, [Message(1, cipher).stamped(0, 0)], [Message(0, cipher).stamped(1, 0)])
    assert (_read(left), _read(right)) == (1, 0)


@pytest.mark.parametrize("cipher", WAYS)
@pytest.mark.parametrize("lane", [0, 1])
def test_a_message_that_is_replayed_is_refused_on_every_lane_whatever_its_stamp(cipher: str, lane: int) -> None:
    message = Message(0, cipher)
    again = message.stamped(lane, 1 - lane)
    lane_readers = _lane_readers(
        cipher, [message.stamped(0, 0), *([again] if lane == 0 else [])], [again] if lane else []
    )
    assert _read(lane_readers[0]) == 0
    with pytest.raises(RemoteProtocolError, match="each message must come once, message 0 was repeated"):
        lane_readers[lane].read()


@pytest.mark.parametrize("cipher", WAYS)
def test_a_message_that_was_left_out_is_missed(cipher: str) -> None:
    (lane_reader,) = _lane_readers(cipher, [Message(0, cipher).stamped(0, 0), Message(2, cipher).stamped(0, 2)])
    assert _read(lane_reader) == 0
    with pytest.raises(RemoteProtocolError, match="message 1 must come next, got 2: messages were lost"):
        lane_reader.read()


@pytest.mark.parametrize("changes", [{"session": 8}, {"session": 6}, {"session": 6, "stream": 1}, {"stream": 3}])
@pytest.mark.parametrize("cipher", WAYS)
def test_a_message_of_another_session_or_a_later_stream_is_refused(cipher: str, changes: dict[str, int]) -> None:
    (lane_reader,) = _lane_readers(cipher, [Message(0, cipher, **changes).stamped(0, 0)])
    with pytest.raises(RemoteProtocolError, match=r"must be of \(session, stream\) \(7, 2\), got one of"):
        lane_reader.read()


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("cipher", WAYS)
def test_messages_of_a_former_stream_are_dropped_counted_as_read_and_take_no_number(cipher: str, apart: bool) -> None:
    """Lanes outlive streams: what was under way when the stream was opened again still comes."""
    old, new = Message(0, cipher, stream=1), Message(0, cipher)
    frames = [*(old.apart(0, 0) if apart else [old.stamped(0, 0)]), new.stamped(0, 1)]
    (lane_reader,) = _lane_readers(cipher, frames)
    assert _read(lane_reader) == 0
    assert lane_reader.read() is None
    assert lane_reader.lane_reader.read_bytes == sum(map(len, frames))


@pytest.mark.parametrize("cipher", WAYS)
def test_a_gap_among_messages_of_a_former_stream_is_noticed(cipher: str) -> None:
    (lane_reader,) = _lane_readers(cipher, [Message(0, cipher, stream=1).stamped(0, 1)])
    with pytest.raises(RemoteProtocolError, match="message 0 must come next, got 1: messages were lost"):
        lane_reader.read()


def test_a_payload_that_comes_apart_is_its_headers() -> None:
    zero, one = Message(0, ""), Message(1, "")
    (lane_reader,) = _lane_readers("", [*zero.apart(0, 0), one.stamped(0, 1)])
    assert [_read(lane_reader), _read(lane_reader)] == [0, 1]
    for frames in (
        [zero.apart(0, 0)[0], one.apart(0, 1)[1]],  # another's payload
        [zero.apart(0, 0)[0], one.stamped(0, 1)],  # none
        [_flipped(zero.apart(0, 0)[0], len(zero.head)), zero.payload],  # the checksum of its ends
    ):
        (lane_reader,) = _lane_readers("", frames)
        with pytest.raises(RemoteProtocolError, match="a payload must follow its header"):
            lane_reader.read()
    head = zero.apart(0, 0)[0]
    for at in (*range(len(zero.head)), *range(len(head) - STAMP, len(head))):
        (lane_reader,) = _lane_readers("", [_flipped(head, at), zero.payload])
        with pytest.raises(RemoteProtocolError):
            lane_reader.read()


@pytest.mark.parametrize("cipher", CIPHERS)
def test_a_clear_payload_that_comes_apart_is_not_taken_for_a_sealed_one(cipher: str) -> None:
    (lane_reader,) = _lane_readers(cipher, Message(0, "").apart(0, 0))
    with pytest.raises(RemoteProtocolError, match="must add up to the payload's 84 bytes"):
        lane_reader.read()


@pytest.mark.parametrize("cipher", WAYS)
def test_a_message_that_is_replayed_apart_is_refused(cipher: str) -> None:
    message = Message(0, cipher)
    first, second = _lane_readers(cipher, [message.stamped(0, 0)], message.apart(1, 0))
    assert _read(first) == 0
    with pytest.raises(RemoteProtocolError, match="message 0 was repeated"):
        second.read()


@pytest.mark.parametrize("cipher", CIPHERS)
def test_what_cannot_be_opened_takes_no_number_and_a_payload_too_short_for_a_tag_is_refused(cipher: str) -> None:
    honest = Message(0, cipher)
    broken = Message(0, cipher)
    for payload in (_flipped(honest.payload, 0), b"", bytes(TAG_BYTES - 1)):
        broken.payload = payload
        first, second = _lane_readers(cipher, [broken.stamped(0, 0)], [honest.stamped(1, 0)])
        with pytest.raises(RemoteProtocolError):
            first.read()
        assert _read(second) == 0
