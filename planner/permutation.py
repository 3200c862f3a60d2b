"""A keyed permutation of [0, n) that is never stored.

It is a Feistel network over Z_a x Z_b, where a * b is the smallest such rectangle that holds n. A
number is split into a row and a column, and each round moves one of them by a hash of the other.
Every round can be undone, so the whole is a bijection of the rectangle. The few results outside [0,
n) pass through the network again until they fall inside. The rectangle has less than sqrt(n) + 1
cells too many, so at a billion this concerns one number in tens of thousands.

Every step is integer arithmetic modulo 2**64. A change of one result is a change of every plan:
raise PLAN_VERSION.

Covers: the place of any number and the number of any place, in constant memory, the same on every
machine and with every release of NumPy. Does not cover: what is permuted, where keys come from
(order.py).
"""

import hashlib
from math import isqrt

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.native import NativePermutation

__all__ = ["LARGEST", "Permutation"]

LARGEST = 2**40
"""The largest n. Rows and columns are then at most 2**20, and scaling a 32-bit hash to them is
uniform up to 2**-12."""

_CHUNK = 16384
"""Numbers processed at a time: five arrays of 128 KiB stay in a core's second-level cache."""

_ROUNDS = 12
"""Six for each half. Chi-square tests of large permutations fail at four rounds and pass from six
on."""

_ROUNDS_SMALL = 24
"""Below 4,096 numbers a half has few values and a round has little effect. At eight rounds the 120
orders of five numbers are uneven, at twelve they are not. Small plans have time for twice that."""

_MIX = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_TWEAK_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_TWEAK_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_TWEAK_STEP = np.uint64(0x9E3779B97F4A7C15)

_Words = npt.NDArray[np.uint64]


def _spread(tweaks: npt.NDArray[np.int64]) -> _Words:
    """Map small neighbouring numbers to distant 64-bit words, one to one."""
    words = tweaks.astype(np.uint64)
    words += np.uint64(1)
    words *= _TWEAK_STEP
    for shift, factor in zip(_TWEAK_SHIFTS, _TWEAK_FACTORS, strict=False):
        words ^= words >> shift
        words *= factor
    words ^= words >> _TWEAK_SHIFTS[2]
    return words


class Permutation:
    """A permutation of [0, n) drawn by `key`.

    Immutable and without shared buffers: threads may use one together.
    """

    __slots__ = ("_columns", "_n", "_native", "_rounds", "_rows")

    def __init__(self, n: int, key: bytes) -> None:
        if not 1 <= n <= LARGEST:
            raise ConfigError(f"a permutation's n must be in [1, {LARGEST}], got {n}")
        self._n = n
        self._rows = np.uint64(isqrt(n - 1) + 1)
        self._columns = np.uint64(-(-n // int(self._rows)))
        rounds: list[tuple[np.uint64, np.uint64]] = []
        for number in range(_ROUNDS if n >= 4096 else _ROUNDS_SMALL):
            material = hashlib.sha256(b"emlio.permutation/%d/%d/" % (n, number) + key).digest()
            factor = int.from_bytes(material[:8], "little") | 1
            rounds.append((np.uint64(factor), np.uint64(int.from_bytes(material[8:16], "little"))))
        self._rounds = tuple(rounds)
        numbers = [(int(factor), int(offset)) for factor, offset in rounds]
        self._native = NativePermutation(n, int(self._rows), int(self._columns), numbers)

    def __len__(self) -> int:
        return self._n

    def forward(
        self, places: npt.NDArray[np.int64], tweaks: npt.NDArray[np.int64] | None = None
    ) -> npt.NDArray[np.int64]:
        """Return the number at each place.

        Args:
            places: places in [0, n).
            tweaks: one non-negative number for each place. Places with equal tweaks share a
                permutation, others have another one. So thousands of equal windows are permuted in
                one call.
        """
        return self._walk(places, tweaks, inverse=False)

    def inverse(
        self, numbers: npt.NDArray[np.int64], tweaks: npt.NDArray[np.int64] | None = None
    ) -> npt.NDArray[np.int64]:
        """Return the place of each number: `inverse(forward(p, t), t) == p`."""
        return self._walk(numbers, tweaks, inverse=True)

    def _walk(
        self, values: npt.NDArray[np.int64], tweaks: npt.NDArray[np.int64] | None, *, inverse: bool
    ) -> npt.NDArray[np.int64]:
        words = np.asarray(values, dtype=np.int64).view(np.uint64)
        # As unsigned, a negative number is huge: one comparison checks both ends.
        if words.size and int(words.max()) >= self._n:
            raise ConfigError(
                f"places must be in [0, {self._n}), got values from {int(values.min())} to {int(values.max())}"
            )
        found = self._native.permute(words.view(np.int64), tweaks, inverse=inverse) if words.ndim == 1 else None
        if found is not None:
            return found
        result = np.empty(words.shape, dtype=np.uint64)
        limit = np.uint64(self._n)
        for start in range(0, words.size, _CHUNK):
            chunk = slice(start, start + _CHUNK)
            spread = None if tweaks is None else _spread(tweaks[chunk])
            out = result[chunk]
            self._pass(words[chunk], spread, out, inverse=inverse)
            outside = np.flatnonzero(out >= limit)
            while outside.size:
                again = out[outside]
                self._pass(again, None if spread is None else spread[outside], again, inverse=inverse)
                out[outside] = again
                outside = outside[again >= limit]
        return result.view(np.int64)

    def _pass(self, words: _Words, spread: _Words | None, out: _Words, *, inverse: bool) -> None:
        """Pass once through the network; `out` may be `words`."""
        rows, columns = self._rows, self._columns
        row = words // columns
        column = words - row * columns
        hashed = np.empty_like(row)
        spare = np.empty_like(row)
        numbers = range(len(self._rounds))
        for number in reversed(numbers) if inverse else numbers:
            factor, offset = self._rounds[number]
            if number % 2 == 0:
                moved, size, other = row, rows, column
            else:
                moved, size, other = column, columns, row
            if spread is None:
                np.multiply(other, factor, out=hashed)
            else:
                np.add(other, spread, out=hashed)
                np.multiply(hashed, factor, out=hashed)
            np.add(hashed, offset, out=hashed)
            np.right_shift(hashed, _HALF, out=spare)
            np.bitwise_xor(hashed, spare, out=hashed)
            np.multiply(hashed, _MIX, out=hashed)
            # The upper 32 bits, scaled to [0, size) by a product and a shift instead of a division.
            np.right_shift(hashed, _HALF, out=hashed)
            np.multiply(hashed, size, out=hashed)
            np.right_shift(hashed, _HALF, out=hashed)
            # Modulo size without a division: of the value and the value one size away, exactly one
            # lies in [0, size), and as unsigned words it is the smaller of the two.
            if inverse:
                np.subtract(moved, hashed, out=moved)
                np.add(moved, size, out=spare)
            else:
                np.add(moved, hashed, out=moved)
                np.subtract(moved, size, out=spare)
            np.minimum(moved, spare, out=moved)
        np.multiply(row, columns, out=out)
        np.add(out, column, out=out)
