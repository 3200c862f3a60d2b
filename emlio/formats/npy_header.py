"""Arrays in NumPy's .npy form, without a copy and without pickles."""

import io
from dataclasses import dataclass
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError

__all__ = ["MOST_HEADER_BYTES", "NpyHeader", "read_npy", "read_npy_header"]

MOST_HEADER_BYTES = 1 << 16

# NumPy reads a header with Python's own parser. That of Python 3.11 counts its depth once for all threads, so that it
# may stop with a SystemError when two threads parse at the same time, which is rare.
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NpyHeader:
    """The header of an array's file.

    Attributes:
        shape: of the array.
        dtype: of its numbers.
        fortran: whether columns come first.
        begin: the byte at which the numbers begin.
    """

    shape: tuple[int, ...]
    dtype: "np.dtype[Any]"
    fortran: bool
    begin: int

    @property
    def size_bytes(self) -> int:
        """The bytes of the numbers."""
        count = 1
        for length in self.shape:
            count *= length
        return count * self.dtype.itemsize


def read_npy_header(head: bytes) -> NpyHeader:
    """Return the header at the beginning of a .npy file's bytes.

    Raises:
        DatasetError: there is none, or the array holds Python objects.
    """
    try:
        header = _parsed(head)
    except (ValueError, EOFError, SyntaxError, TypeError, RecursionError, MemoryError, TokenError) as error:
        raise DatasetError(f"must be a .npy file: {str(error)[:200]}") from error
    if header.dtype.hasobject:
        raise DatasetError(
            f"must be an array of numbers, holds Python objects ({header.dtype}), which are never unpickled"
        )
    if any(length < 0 for length in header.shape):
        raise DatasetError(f"must have a shape without negative lengths, has {header.shape}")
    return header


def _parsed(head: bytes) -> NpyHeader:
    for attempt in range(_ATTEMPTS):
        file = io.BytesIO(head)
        version = np.lib.format.read_magic(file)
        reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
        if reader is None:
            raise DatasetError(f"must be a .npy file of version 1.0 or 2.0, is of {version[0]}.{version[1]}")
        try:
            shape, fortran, dtype = reader(file, max_header_size=MOST_HEADER_BYTES)
        except SystemError:
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        return NpyHeader(shape=tuple(shape), dtype=dtype, fortran=fortran, begin=file.tell())
    raise AssertionError("the last attempt returns or raises")


def read_npy(data: memoryview) -> npt.NDArray[Any]:
    """Return the array of a whole .npy file, on its bytes where its order and byte order are this machine's.

    Raises:
        DatasetError: it is not a whole .npy file of numbers.
    """
    header = read_npy_header(bytes(data[: MOST_HEADER_BYTES + 16]))
    there = len(data) - header.begin
    if there != header.size_bytes:
        raise DatasetError(
            f"must be a .npy file with {header.size_bytes} bytes of {header.dtype} for the shape {header.shape}, has "
            f"{there}"
        )
    try:
        flat = np.frombuffer(data, header.dtype, offset=header.begin) if there else np.empty(0, header.dtype)
        array = flat.reshape(header.shape, order="F" if header.fortran else "C")
    except (ValueError, OverflowError) as error:
        raise DatasetError(f"must be an array of {header.dtype} with the shape {header.shape}: {error}") from error
    return np.asarray(array, dtype=header.dtype.newbyteorder("="), order="C")
