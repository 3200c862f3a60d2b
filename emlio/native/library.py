"""The C library, loaded once in a process.

Covers: finding it, its version, whether it is used. Does not cover: its functions' arguments (the other modules here).
"""

import ctypes
import logging
import os
import threading
from pathlib import Path
from typing import Final

__all__ = ["ABI", "LIBRARY_NAME", "Library", "guard_library", "is_used", "library_for", "say_if_absent", "why_not"]

ABI: Final = 8
"""The version of the functions' arguments. A library of another one is not used."""

LIBRARY_NAME: Final = "libemlio_native.so"
_VARIABLE: Final = "EMLIO_NATIVE"

_KEEPS_LOCK_BYTES: Final = 1 << 18
"""Up to so many bytes a call takes some ten microseconds, less than giving the interpreter's lock away and
waiting for it again."""

_POINTER = ctypes.c_void_p
_INT = ctypes.c_int64
_FLAG = ctypes.c_int32
_BYTES = ctypes.c_uint64
_SIGNATURES: Final = {
    # name: (what it returns, its arguments ...)
    "emlio_check_frames": (_FLAG, _POINTER, _BYTES, _POINTER, _INT, _FLAG, _POINTER, _POINTER),
    "emlio_crc32c_each": (_FLAG, _POINTER, _BYTES, _POINTER, _POINTER, _INT, _POINTER),
    "emlio_crc32c_joined": (ctypes.c_uint32, _POINTER, _POINTER, _INT),
    "emlio_permute": (_FLAG, _POINTER, _POINTER, _POINTER, _INT, _FLAG, _POINTER),
    "emlio_place_rows": (_FLAG, _POINTER, _BYTES, *[_POINTER] * 3, _INT, _POINTER, _INT, _BYTES, _POINTER),
    "emlio_locate": (_FLAG, _POINTER, _INT, _POINTER, _POINTER, _INT, _POINTER, _POINTER, _POINTER),
    "emlio_scan_examples": (
        _INT,
        _POINTER,
        _BYTES,
        *[_POINTER] * 2,
        _INT,
        *[_POINTER] * 2,
        _INT,
        _FLAG,
        *[_POINTER] * 6,
    ),
    "emlio_example_numbers": (_FLAG, _POINTER, _BYTES, *[_POINTER] * 5, _INT, _POINTER, _INT, *[_POINTER] * 4),
    "emlio_guard_install": (_FLAG,),
    "emlio_guard_holds": (_FLAG,),
    "emlio_join_ranges": (_INT, _POINTER, _POINTER, _POINTER, *[_INT] * 5, *[_POINTER] * 7),
    "emlio_copy_each": (None, *[_POINTER] * 3, _INT),
    "emlio_disk_open": (_POINTER, _FLAG, _FLAG, _FLAG, _POINTER),
    "emlio_disk_alignment": (_INT, _FLAG),
    "emlio_disk_begin": (_POINTER, _POINTER, _INT, *[_POINTER] * 5, _FLAG),
    "emlio_disk_finish": (_FLAG, *[_POINTER] * 5, _INT, _POINTER, _POINTER),
    "emlio_disk_push": (None, _POINTER),
    "emlio_disk_pack": (None, _POINTER, _POINTER, _POINTER, _INT, _POINTER),
    "emlio_disk_drop": (_FLAG, _POINTER, _POINTER),
    "emlio_disk_waited": (_INT, _POINTER),
    "emlio_disk_stop": (None, _POINTER),
    "emlio_disk_close": (None, _POINTER),
    "emlio_disk_free": (None, _POINTER),
    "emlio_open_files": (None, _POINTER, *[_FLAG] * 4, _POINTER, _INT, _POINTER),
    "emlio_read_indexed": (_INT, _POINTER, *[_FLAG] * 3, *[_POINTER] * 3, _INT, _POINTER, _INT),
    "emlio_look_at_files": (None, _POINTER, _FLAG, _POINTER, _INT, _POINTER),
    "emlio_close_files": (None, _POINTER, _INT),
    "emlio_read_files": (_INT, *[_POINTER] * 4, _INT, _POINTER, _BYTES),
    "emlio_fuse_open": (_POINTER, _POINTER, _FLAG, _FLAG, _FLAG, _INT, _POINTER),
    "emlio_fuse_mounted": (_FLAG, _POINTER, ctypes.c_char_p, _BYTES),
    "emlio_fuse_serve": (_FLAG, _POINTER),
    "emlio_fuse_watch": (None, _POINTER),
    "emlio_fuse_wait": (_INT, _POINTER, _POINTER, _INT, _INT),
    "emlio_fuse_answer": (None, _POINTER, _INT, *[_POINTER] * 6),
    "emlio_fuse_push": (None, _POINTER, _INT, _POINTER),
    "emlio_fuse_drop": (None, _POINTER, _INT, *[_POINTER] * 3, _INT),
    "emlio_fuse_counts": (None, _POINTER, _POINTER),
    "emlio_fuse_abort": (_FLAG, _POINTER),
    "emlio_fuse_stop": (None, _POINTER),
    "emlio_fuse_free": (None, _POINTER),
    "emlio_find_paths": (None, _POINTER, ctypes.c_char_p, _POINTER, _INT, _POINTER),
    "emlio_gather": (_INT, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _INT, _POINTER, _BYTES),
}


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
    for name, (returned, *arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, returned
    return library


_said = threading.Event()
_LIBRARY = Library(Path(__file__).parents[1] / LIBRARY_NAME, os.environ.get(_VARIABLE))


def is_used() -> bool:
    """Return whether the library is there and used."""
    return _LIBRARY.free is not None


def library_for(size_bytes: int) -> ctypes.CDLL | None:
    """Return the library for a call on this many bytes; None if it is not used."""
    return _LIBRARY.call(size_bytes)


def guard_library() -> ctypes.CDLL | None:
    """Return the library for calls that may wait for a disk, without the interpreter's lock; None if it is not used."""
    return _LIBRARY.free


def why_not() -> str:
    """Return why the library is not used; "" if it is."""
    return _LIBRARY.reason


def say_if_absent(log: logging.Logger) -> None:
    """Say once in this process that NumPy does the work, and why."""
    if _LIBRARY.reason and not _said.is_set():
        _said.set()
        log.info("the C library is not used, NumPy does its work, more slowly: %s", _LIBRARY.reason)
