"""Files mapped into memory, without the descriptor that Python's own mappings keep open."""

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


def map_file(descriptor: int, size_bytes: int, protection: int = mmap.PROT_READ, flags: int = mmap.MAP_SHARED) -> int:
    """Map the first `size_bytes` of an open file and return the address.

    The caller must pass the address to `unmap` once. An empty file takes a page, of which no byte may be read.

    Raises:
        OSError: the system refused; ENOMEM if the process has reached its limit of mappings.
    """
    address: int | None = _mmap(None, size_bytes or 1, protection, flags, descriptor, 0)
    if address is None or address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return address


def unmap(address: int, size_bytes: int) -> None:
    """End a mapping. No code may use it afterwards."""
    _munmap(address, size_bytes or 1)


class MappedFile:
    """A mapped file. The mapping ends when the last reference to it or to its arrays is gone.

    Attributes:
        address: its start.
        size_bytes: its length.
    """

    def __init__(self, descriptor: int, size_bytes: int, *, writable: bool = False, private: bool = False) -> None:
        """Map the first `size_bytes` of an open file, which may be closed afterwards.

        Args:
            descriptor: the open file.
            size_bytes: its length.
            writable: whether its bytes may be written to.
            private: keep what is written in this process only.

        Raises:
            OSError: as `map_file`.
        """
        self.size_bytes = size_bytes
        self._writable = writable
        self.address = map_file(
            descriptor,
            size_bytes,
            mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0),
            mmap.MAP_PRIVATE if private else mmap.MAP_SHARED,
        )
        # Not at exit, when other threads may still use the mapping.
        weakref.finalize(self, unmap, self.address, size_bytes).atexit = False

    @property
    def __array_interface__(self) -> dict[str, object]:
        return {"version": 3, "data": (self.address, not self._writable), "shape": (self.size_bytes,), "typestr": "|u1"}

    def array(self) -> npt.NDArray[np.uint8]:
        """Return all its bytes, read-only unless it is writable. The array keeps the mapping alive."""
        return np.asarray(self)
