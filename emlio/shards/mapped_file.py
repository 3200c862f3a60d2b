"""Files mapped for reading, without the descriptor that Python's own mappings keep open.

Covers: making a mapping and ending it. Does not cover: how many there may be (emlio.reading.room), which part is used.
"""

import ctypes
import mmap
import os
import weakref

import numpy as np
import numpy.typing as npt

__all__ = ["MappedFile", "map_file", "unmap"]

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_munmap = _libc.munmap
_munmap.restype = ctypes.c_int
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


def map_file(descriptor: int, size_bytes: int) -> int:
    """Map the first `size_bytes` of an open file and return the address; it must be given to `unmap` once.

    Raises:
        OSError: the system refused; ENOMEM where the process has as many mappings as it may.
    """
    address: int | None = _mmap(None, size_bytes, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address is None or address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return address


def unmap(address: int, size_bytes: int) -> None:
    """End a mapping; nothing may use it any more."""
    _munmap(address, size_bytes)


class MappedFile:
    """A mapped file that lasts as long as anybody refers to it, or to an array of it.

    Attributes:
        address: where it begins.
        size_bytes: its length.
    """

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        """Map the first `size_bytes` of an open file, which may be closed then.

        Raises:
            OSError: as `map_file`.
        """
        self.size_bytes = size_bytes
        self.address = map_file(descriptor, size_bytes)
        # At the end of the process other threads may still use it.
        weakref.finalize(self, unmap, self.address, size_bytes).atexit = False

    @property
    def __array_interface__(self) -> dict[str, object]:
        return {"version": 3, "data": (self.address, True), "shape": (self.size_bytes,), "typestr": "|u1"}

    def array(self) -> npt.NDArray[np.uint8]:
        """All of its bytes, not to be written; the array keeps the mapping."""
        return np.asarray(self)
