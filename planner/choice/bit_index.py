"""A set of numbers as bits, with an index: how many before a number, and which is the k-th.

Covers: counting and selecting in a packed array of bits, an eighth more memory than the bits. Does not cover: the meaning of
the numbers (record_set.py).
"""

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["BitIndex"]

_BLOCK: Final = 64
"""Bytes of a block, for which a running count is kept: a cache line."""

_BLOCK_BITS: Final = 8 * _BLOCK

_AT_ONCE: Final = 4096
"""Numbers looked up at a time: a block of bytes for each is 256 KiB."""

_BITS: Final = np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1, bitorder="little")
_ONES: Final = _BITS.sum(axis=1, dtype=np.uint8)
_BEFORE: Final = (np.cumsum(_BITS, axis=1, dtype=np.uint8) - _BITS).astype(np.uint8)
"""For each byte and bit, the number of set bits below it."""


def _positions() -> npt.NDArray[np.uint8]:
    table = np.zeros((256, 8), dtype=np.uint8)
    for byte in range(256):
        found = np.flatnonzero(_BITS[byte])
        table[byte, : found.size] = found
    return table


_POSITIONS: Final = _positions()
"""For each byte and k, the position of its k-th set bit."""


class BitIndex:
    """Bits, the lowest of each byte first. Immutable, so threads may share it.

    Attributes:
        count: the number of set bits.
    """

    __slots__ = ("_before", "_blocks", "count")

    def __init__(self, packed: npt.NDArray[np.uint8]) -> None:
        padded = np.zeros(-(-max(packed.size, 1) // _BLOCK) * _BLOCK, np.uint8)
        padded[: packed.size] = packed
        self._blocks = padded.reshape(-1, _BLOCK)
        before = np.zeros(len(self._blocks) + 1, dtype=np.int64)
        for begin in range(0, len(self._blocks), _AT_ONCE):
            some = self._blocks[begin : begin + _AT_ONCE]
            before[begin + 1 : begin + 1 + len(some)] = _ONES[some].sum(axis=1, dtype=np.int64)
        np.cumsum(before, out=before)
        self._before = before
        self.count = int(before[-1])

    @property
    def packed(self) -> npt.NDArray[np.uint8]:
        """The bits, with zeros behind them."""
        return self._blocks.reshape(-1)

    def has(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each number whether its bit is set; beyond the end, none is."""
        within = numbers < self._blocks.size * 8
        held = np.where(within, numbers, 0)
        found: npt.NDArray[np.bool_] = _BITS[self._blocks.reshape(-1)[held >> 3], held & 7] != 0
        return within & found

    def before(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many bits are set below each number."""
        result = np.empty(numbers.size, np.int64)
        last = self._blocks.size * 8 - 1
        for begin in range(0, numbers.size, _AT_ONCE):
            some = np.minimum(numbers[begin : begin + _AT_ONCE], last)
            block, rest = some // _BLOCK_BITS, some % _BLOCK_BITS
            byte = rest >> 3
            rows = self._blocks[block]
            ones = np.where(np.arange(_BLOCK) < byte[:, np.newaxis], _ONES[rows], 0).sum(axis=1, dtype=np.int64)
            ones += self._before[block] + _BEFORE[rows[np.arange(len(rows)), byte], rest & 7]
            result[begin : begin + _AT_ONCE] = np.where(numbers[begin : begin + _AT_ONCE] > last, self.count, ones)
        return result

    def kth(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the position of each k-th set bit; k must be in [0, count)."""
        result = np.empty(numbers.size, np.int64)
        for begin in range(0, numbers.size, _AT_ONCE):
            some = numbers[begin : begin + _AT_ONCE]
            block = np.searchsorted(self._before, some, side="right") - 1
            rows = self._blocks[block]
            running = np.cumsum(_ONES[rows], axis=1, dtype=np.uint16)
            left = some - self._before[block]
            byte = (running <= left[:, np.newaxis]).sum(axis=1)
            lines = np.arange(len(rows))
            held = rows[lines, byte]
            left -= running[lines, byte] - _ONES[held]
            result[begin : begin + _AT_ONCE] = block * _BLOCK_BITS + byte * 8 + _POSITIONS[held, left]
        return result
