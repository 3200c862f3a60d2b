"""A sealed payload.

byte 0        bit 0: the cipher; bit 1: seal the rest, then change it as the next four bytes say; else the rest is what came
bytes 1 to 8  the message's number in its stream
byte 9        bytes of the header
rest          header and payload
"""

from emlio.errors import RemoteProtocolError
from emlio.wire.seal import CIPHERS, SECRET_BYTES, TAG_BYTES, StreamSeal
from tests.fuzz.draws import Draws
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]

_SECRET = b"s" * SECRET_BYTES


def fuzz(data: bytes) -> None:
    """What was sealed is opened if nothing was changed, and never if something was."""
    draws = Draws(data)
    flags = draws.byte()
    cipher = CIPHERS[flags & 1]
    number = int.from_bytes(draws.take(8), "little") % (1 << 62)
    header_bytes = draws.byte()
    place, change, elsewhere = int.from_bytes(draws.take(2), "little"), draws.byte(), draws.byte()
    header, payload = draws.take(header_bytes), draws.rest()
    seal = StreamSeal(cipher=cipher, secret=_SECRET, session=1, stream=1)
    if not flags & 2:
        seal.open(number, header, payload, bytearray(max(len(payload) - TAG_BYTES, 0)))
        raise AssertionError("what nobody sealed was opened")
    sealed = bytearray(len(payload) + TAG_BYTES)
    seal.seal(number, header, payload, sealed)
    opened = bytearray(len(payload))
    sealed[place % len(sealed)] ^= change
    cipher = CIPHERS[(flags & 1) ^ (elsewhere == 1)]
    rank = StreamSeal(cipher=cipher, secret=_SECRET, session=1 + (elsewhere == 5), stream=1 + (elsewhere == 2))
    opened_as = number + (elsewhere == 3)
    head = header + bytes(elsewhere == 4)
    rank.open(opened_as, head, memoryview(sealed), opened)
    assert (change, elsewhere) == (0, 0) or (change == 0 and elsewhere > 5), "what was changed was opened"
    assert opened == payload


TARGET = Target(fuzz=fuzz, raises=(RemoteProtocolError,))
