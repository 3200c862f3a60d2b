"""A plan's permutation in the C library.

Covers: the call, the parameters as C takes them. Does not cover: how they are chosen (emlio.planner.permutation).
"""

import ctypes
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.native.library import library_for

__all__ = ["NativePermutation"]

_MOST_ROUNDS: Final = 24

_Ints = npt.NDArray[np.int64]


class _Parameters(ctypes.Structure):
    """The C structure of a permutation."""

    _fields_ = (
        ("n", ctypes.c_uint64),
        ("rows", ctypes.c_uint64),
        ("columns", ctypes.c_uint64),
        ("rounds", ctypes.c_int64),
        ("factors", ctypes.c_uint64 * _MOST_ROUNDS),
        ("offsets", ctypes.c_uint64 * _MOST_ROUNDS),
    )


class NativePermutation:
    """A permutation's parameters as the library takes them. Immutable, so threads may share it."""

    __slots__ = ("_parameters",)

    def __init__(self, n: int, rows: int, columns: int, rounds: Sequence[tuple[int, int]]) -> None:
        """See `emlio.planner.permutation`.

        Args:
            n: how many numbers are permuted.
            rows: of the rectangle.
            columns: of the rectangle.
            rounds: the factor and the offset of each round.
        """
        made = self._parameters = _Parameters(n, rows, columns, len(rounds))
        # With more rounds than there is room for the library refuses, and NumPy does the work.
        for number, (factor, offset) in enumerate(rounds[:_MOST_ROUNDS]):
            made.factors[number], made.offsets[number] = factor, offset

    def permute(self, values: _Ints, tweaks: _Ints | None, *, inverse: bool) -> _Ints | None:
        """Return the permuted values, which are in [0, n); None without the library."""
        library = library_for(8 * len(values))
        if library is None:
            return None
        values = np.ascontiguousarray(values, np.int64)
        out = np.empty(len(values), np.int64)
        turned = None if tweaks is None else np.ascontiguousarray(tweaks, np.int64)
        if turned is not None and turned.shape != values.shape:
            return None  # the library would read behind them
        wrong = library.emlio_permute(
            ctypes.addressof(self._parameters),  # not kept: a copy, or one that was pickled, has another
            values.ctypes.data,
            None if turned is None else turned.ctypes.data,
            len(values),
            inverse,
            out.ctypes.data,
        )
        return None if wrong else out
