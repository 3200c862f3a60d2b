"""Answers that are encoded around their payload have the bytes of others."""

import numpy as np
import pytest

from emlio.checksum import crc32c
from emlio.errors import LocalProtocolError
from emlio.wire.control import decode_control, encode_control, encode_in_place, payload_crc, room_before
from emlio.wire.limits import RANGE_BYTES_PER_REPLY, RANGES_PER_REQUEST
from emlio.wire.questions import Absent, Answer, Ranges


@pytest.mark.parametrize("size", [1, 255, 256, 65_535, 65_536, RANGE_BYTES_PER_REPLY])
@pytest.mark.parametrize("count", [1, RANGES_PER_REQUEST])
def test_an_answer_in_place_has_the_bytes_of_another(size: int, count: int) -> None:
    payload, crcs, first = bytes(range(256)) * (size // 256 + 1), bytes(4 * count), room_before(count)
    memory = memoryview(bytearray(first) + payload[:size])
    answer = Answer(number=(1 << 62) - 1, told=Ranges(crcs=crcs, payload=memoryview(payload[:size])))
    for crc in (None, crc32c(payload[:size])):
        empty = Answer(number=(1 << 62) - 1, told=Ranges(crcs=crcs, payload=memoryview(b"")))
        made = encode_in_place(empty, memory, first, crc)
        assert made == encode_control(answer)
        assert decode_control(made) == answer


def test_the_checksum_of_a_payload_follows_from_that_of_its_message() -> None:
    payload = np.random.default_rng(1).bytes(100_000)
    message = encode_control(Answer(number=7, told=Ranges(crcs=bytes(4), payload=memoryview(payload))))
    answer = decode_control(message)
    assert isinstance(answer, Answer)
    assert isinstance(answer.told, Ranges)
    assert payload_crc(answer.told.payload) in (crc32c(payload), None)  # None without the C library
    assert payload_crc(memoryview(payload)) is None, "in no message"
    assert payload_crc(answer.told.payload[:-1]) is None, "not the end of one"


def test_an_answer_without_a_payload_at_its_end_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="must end with an empty payload"):
        encode_in_place(Answer(number=1, told=Absent(text="none")), memoryview(bytearray(300)), 200)
