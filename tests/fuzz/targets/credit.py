"""A credit, alone or after others.

byte 0   bit 0: put the right checksum before what follows; bit 1: what follows are a session's messages and its rank's credits,
         one after the other, over lanes of which byte 1 says how many
rest     the credit, or its msgpack
"""

from emlio.checksum import crc32c
from emlio.daemon.lanes.group import LaneGroup
from emlio.errors import RemoteProtocolError
from emlio.session.credits import Place
from emlio.wire.credit import MAX_CREDIT_BYTES, Credit, decode_credit, encode_credit
from emlio.wire.seal import SECRET_BYTES
from tests.fuzz.draws import Draws
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]

_LIMIT_BYTES = 4096
_MOST_MESSAGES = 8
_MESSAGES: tuple[tuple[Place, int], ...] = (((0, 0), 1), ((0, 8), 100), ((1, 0), 1 << 20), ((1 << 40, 0), 1))
"""That a stream may be allowed to send, or not."""


def fuzz(data: bytes) -> None:
    """A credit is refused or can be written again; what a daemon makes of credits never lets more under way than it may."""
    draws = Draws(data)
    flags = draws.byte()
    if flags & 2:
        _hear_all(draws)
        return
    frame = draws.rest()
    if flags & 1:
        frame = crc32c(frame).to_bytes(4, "little") + frame
    credit = decode_credit(frame)
    again = encode_credit(credit)
    assert len(again) <= MAX_CREDIT_BYTES
    assert decode_credit(memoryview(again)) == credit


def _hear_all(draws: Draws) -> None:
    group = LaneGroup(session=1, secret=bytes(SECRET_BYTES), limit_bytes=_LIMIT_BYTES, most_messages=_MOST_MESSAGES)
    lanes = [group.admit(number, 0) for number in range(1 + draws.byte() % 4)]
    sent = dict.fromkeys(lanes, 0)
    stream = group.open(1, Credit(read_bytes=0, stream=1))
    while draws.left:
        lane = draws.choice(lanes)
        if draws.byte() < 100:
            size_bytes = 1 + 16 * draws.byte()
            if group.allows(lane, size_bytes):
                lane.gave(size_bytes)
                sent[lane] += size_bytes
        else:
            allowed = [stream.allows(*message) for message in _MESSAGES]
            group.hear(lane, _drawn(draws, sent[lane] - lane.under_way_bytes))
            now = [stream.allows(*message) for message in _MESSAGES]
            assert now >= allowed, "what was allowed is never taken back"
        assert 0 <= lane.under_way_bytes <= min(sent[lane], _LIMIT_BYTES)


def _drawn(draws: Draws, read_bytes: int) -> bytes:
    """A credit that says to have read a little more than before, or anything."""
    read_bytes = read_bytes + 16 * draws.byte() if draws.byte() < 200 else draws.number()
    credit = Credit(
        read_bytes=read_bytes,
        stream=draws.byte() % 4,
        allowed_bytes=draws.number(),
        epoch=draws.number(),
        slot=draws.number(),
        must_epoch=draws.number(),
        must_slot=draws.number(),
    )
    return encode_credit(credit)


TARGET = Target(
    fuzz=fuzz,
    raises=(RemoteProtocolError,),
    tokens=(b"\x98", b"\xcf" + b"\xff" * 8, b"\xdd\xff\xff\xff\xff", b"\x91" * 64),
    most_bytes=512,
)
