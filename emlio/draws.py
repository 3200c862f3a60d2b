"""Random numbers that depend only on a record's number, not on earlier draws.

Covers: 64 bits for each of many records at once, the same on every machine and with every release
of NumPy. Does not cover: permutations (emlio.planner.permutation).
"""

import hashlib

import numpy as np
import numpy.typing as npt

__all__ = ["draw", "random_bytes"]

_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


def _key(purpose: str, seed: int, size_bytes: int) -> bytes:
    return hashlib.shake_128(f"emlio.draw/1/{seed}/{purpose}".encode()).digest(size_bytes)


def draw(purpose: str, seed: int, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return one 64-bit word for each number.

    Args:
        purpose: words drawn for different purposes are independent.
        seed: the seed of the dataset.
        numbers: the numbers of the records.
    """
    keys = np.frombuffer(_key(purpose, seed, 24), dtype="<u8")
    words = numbers.astype(np.uint64)
    for key in keys:  # three keyed rounds, so that neighbouring numbers and seeds share nothing
        words ^= key
        words ^= words >> _SHIFTS[0]
        words *= _FACTORS[0]
        words ^= words >> _SHIFTS[1]
        words *= _FACTORS[1]
        words ^= words >> _SHIFTS[2]
    return words


def random_bytes(purpose: str, seed: int, size_bytes: int) -> bytes:
    """Return bytes that cannot be compressed."""
    return _key(purpose, seed, size_bytes)
