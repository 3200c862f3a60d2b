"""The C library of this package, and its functions on NumPy's arrays.

It is there if a C compiler was found when the package was built, or if the wheel brings it. Without it, or with the
variable EMLIO_NATIVE=0, every function here returns None, and the caller does the same with NumPy. A result of None also
means that something is wrong with the data; the caller finds out and says what.

Covers: loading the library once, its functions. Does not cover: building it (setup.py), what it computes
(native/emlio_native.c). Only this module calls it.
"""

import ctypes
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "ABI",
    "LIBRARY_NAME",
    "NativePermutation",
    "check_frames",
    "checksums",
    "is_used",
    "say_if_absent",
    "why_not",
]

ABI: Final = 1
"""The version of the functions' arguments. A library of another one is not used."""

LIBRARY_NAME: Final = "libemlio_native.so"
_VARIABLE: Final = "EMLIO_NATIVE"

_MOST_ROUNDS: Final = 24
_KEEPS_LOCK_BYTES: Final = 1 << 18
"""Up to so many bytes a call takes some ten microseconds, less than giving the interpreter's lock away and
waiting for it again."""

_Ints = npt.NDArray[np.int64]
_POINTER = ctypes.c_void_p
_ARGUMENTS: Final = {
    "emlio_check_frames": (_POINTER, ctypes.c_uint64, _POINTER, ctypes.c_int64, ctypes.c_int32, _POINTER, _POINTER),
    "emlio_crc32c_each": (_POINTER, ctypes.c_uint64, _POINTER, _POINTER, ctypes.c_int64, _POINTER),
    "emlio_permute": (_POINTER, _POINTER, _POINTER, ctypes.c_int64, ctypes.c_int32, _POINTER),
}


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


class Library:
    """The loaded library, if there is one.

    Attributes:
        free: calls that let the interpreter's lock go; None without a library.
        kept: calls that keep it.
        reason: why there is none.
    """

    def __init__(self, path: Path, variable: str | None = None) -> None:
        self.free: ctypes.CDLL | None = None
        self.kept: ctypes.CDLL | None = None
        self.reason = ""
        if variable == "0":
            self.reason = f"{_VARIABLE}=0 is set"
        elif not path.exists():
            self.reason = "it was not built: no C compiler was found when emlio was installed"
        else:
            try:
                self.free, self.kept = _loaded(ctypes.CDLL, path), _loaded(ctypes.PyDLL, path)
            except (OSError, AttributeError, ValueError) as error:
                self.free, self.reason = None, f"{path} cannot be used: {error}"

    def call(self, size_bytes: int) -> ctypes.CDLL | None:
        """Return the library for a call on this many bytes."""
        return self.kept if size_bytes <= _KEEPS_LOCK_BYTES else self.free


def _loaded(kind: type[ctypes.CDLL], path: Path) -> ctypes.CDLL:
    library = kind(str(path))
    library.emlio_abi.restype = ctypes.c_uint32
    if library.emlio_abi() != ABI:
        raise ValueError(f"it has version {library.emlio_abi()} of its functions, {ABI} is needed; install emlio again")
    for name, arguments in _ARGUMENTS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, ctypes.c_int32
    return library


_said = threading.Event()
_LIBRARY = Library(Path(__file__).with_name(LIBRARY_NAME), os.environ.get(_VARIABLE))


def is_used() -> bool:
    """Return whether the library is there and used."""
    return _LIBRARY.free is not None


def why_not() -> str:
    """Return why the library is not used; "" if it is."""
    return _LIBRARY.reason


def say_if_absent(log: logging.Logger) -> None:
    """Say once in this process that NumPy does the work, and why."""
    if _LIBRARY.reason and not _said.is_set():
        _said.set()
        log.info("the C library is not used, NumPy does its work, more slowly: %s", _LIBRARY.reason)


def check_frames(payload: memoryview, sizes: _Ints, *, verify: bool) -> tuple[_Ints, _Ints] | None:
    """Return where the data of each TFRecord frame begin and end.

    Args:
        payload: the frames, without gaps.
        sizes: the size of each.
        verify: whether to compare the checksums of data.

    Returns:
        None without the library, and if anything is wrong with a frame.
    """
    library = _LIBRARY.call(len(payload))
    if library is None or not len(payload):
        return None
    data, sizes = np.frombuffer(payload, np.uint8), np.ascontiguousarray(sizes, np.int64)
    starts, ends = np.empty(len(sizes), np.int64), np.empty(len(sizes), np.int64)
    wrong = library.emlio_check_frames(
        data.ctypes.data, len(data), sizes.ctypes.data, len(sizes), verify, starts.ctypes.data, ends.ctypes.data
    )
    return None if wrong else (starts, ends)


def checksums(payload: memoryview, starts: _Ints, ends: _Ints) -> npt.NDArray[np.uint32] | None:
    """Return the CRC32C of each range of the payload; None without the library, and if one does not lie in it."""
    library = _LIBRARY.call(len(payload))
    if library is None or not len(payload):
        return None
    data = np.frombuffer(payload, np.uint8)
    starts, ends = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(ends, np.int64)
    if starts.shape != ends.shape:
        return None  # the library would read behind the shorter one
    crcs = np.empty(len(starts), np.uint32)
    wrong = library.emlio_crc32c_each(
        data.ctypes.data, len(data), starts.ctypes.data, ends.ctypes.data, len(starts), crcs.ctypes.data
    )
    return None if wrong else crcs


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
        library = _LIBRARY.call(8 * len(values))
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
