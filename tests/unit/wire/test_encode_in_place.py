"""Answers that are encoded around their payload have the bytes of others."""

import pytest

from emlio.errors import LocalProtocolError
from emlio.wire.control import decode_control, encode_control, encode_in_place, room_before
from emlio.wire.limits import RANGES_PER_REQUEST, RECORD_BYTES_PER_REPLY
from emlio.wire.questions import Absent, Answer, Ranges


@pytest.mark.parametrize("size", [1, 255, 256, 65_535, 65_536, RECORD_BYTES_PER_REPLY])
@pytest.mark.parametrize("count", [1, RANGES_PER_REQUEST])
def test_an_answer_in_place_has_the_bytes_of_another(size: int, count: int) -> None:
    payload, crcs, first = bytes(range(256)) * (size // 256 + 1), bytes(4 * count), room_before(count)
    memory = memoryview(bytearray(first) + payload[:size])
    made = encode_in_place(Answer(number=(1 << 62) - 1, told=Ranges(crcs=crcs, payload=memoryview(b""))), memory, first)
    answer = Answer(number=(1 << 62) - 1, told=Ranges(crcs=crcs, payload=memoryview(payload[:size])))
    assert made == encode_control(answer)
    assert decode_control(made) == answer


def test_an_answer_without_a_payload_at_its_end_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="must end with an empty payload"):
        encode_in_place(Answer(number=1, told=Absent(text="none")), memoryview(bytearray(300)), 200)
