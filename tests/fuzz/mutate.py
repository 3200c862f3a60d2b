"""Inputs made from others.

Covers: changing, cutting and joining inputs, all drawn from a seed; keeping those that came to something new. Does not cover:
running them.
"""

from collections.abc import Sequence
from random import Random

__all__ = ["Mutator"]

_MOST_KEPT = 2048
_ODD_BYTES = (0, 1, 0x0A, 0x12, 0x1A, 0x20, 0x7F, 0x80, 0x90, 0xC1, 0xDD, 0xDF, 0xFF)
_ODD_NUMBERS = (
    0,
    1,
    15,
    16,
    127,
    128,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 62,
    1 << 63,
    (1 << 64) - 1,
)


class Mutator:
    """Makes inputs; the same ones for the same seed as long as the same ones are kept."""

    def __init__(self, inputs: Sequence[bytes], tokens: Sequence[bytes], *, most_bytes: int, seed: str) -> None:
        self._inputs = list(inputs) or [b""]
        self._tokens = tokens
        self._most_bytes = most_bytes
        self._random = Random(seed)

    def make(self) -> bytes:
        """A new input."""
        draw = self._random
        # What came last is often what is worth going on with.
        place = (
            draw.randrange(len(self._inputs))
            if draw.random() < 0.7
            else -1 - draw.randrange(min(len(self._inputs), 16))
        )
        made = bytearray(self._inputs[place])
        for _ in range(1 + int(draw.expovariate(0.7))):
            self._change(made)
        return bytes(made[: self._most_bytes])

    def keep(self, data: bytes) -> None:
        """Make others from this one too."""
        if len(self._inputs) < _MOST_KEPT:
            self._inputs.append(data)
        else:
            self._inputs[self._random.randrange(_MOST_KEPT)] = data

    def _change(self, made: bytearray) -> None:
        draw = self._random
        at = draw.randrange(len(made) + 1)
        size = min(1 << draw.randrange(7), len(made) - at)
        match draw.randrange(10):
            case 0 if at < len(made):
                made[at] ^= 1 << draw.randrange(8)
            case 1 if at < len(made):
                made[at] = draw.choice(_ODD_BYTES)
            case 2 if at < len(made):
                made[at] = draw.randrange(256)
            case 3:
                del made[at : at + size]
            case 4:
                made[at:at] = made[at : at + size] * (1 << draw.randrange(4))
            case 5:
                width = 1 << draw.randrange(4)
                number = (draw.choice(_ODD_NUMBERS) + draw.randrange(-2, 3)) % (1 << (8 * width))
                made[at : at + width] = number.to_bytes(width, draw.choice(("little", "big")))
            case 6 if self._tokens:
                token = draw.choice(self._tokens)
                made[at : at + draw.choice((0, len(token)))] = token
            case 7:
                other = draw.choice(self._inputs)
                begin = draw.randrange(len(other) + 1)
                made[at : at + size] = other[begin : begin + (1 << draw.randrange(10))]
            case 8 if draw.random() < 0.2:
                del made[at:]
            case _:
                made[at:at] = draw.randbytes(1 << draw.randrange(4))
