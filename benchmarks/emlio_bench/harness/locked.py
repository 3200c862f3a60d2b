"""Files that are kept in memory while they are measured.

The kernel may take pages of the page cache away at any time, even straight after a run that read them. A benchmark of
memory would then measure a disk without a word.
"""

import ctypes
import mmap
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

__all__ = ["Locked", "locked"]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.munlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Locked:
    """Files whose pages this process holds in memory.

    Attributes:
        size_bytes: their size.
        refused: the error of the system if it did not allow it; empty if all pages are locked.
    """

    size_bytes: int
    refused: str
    _maps: Sequence[tuple[int, int]] = field(default=(), repr=False)

    def resident(self) -> float:
        """Return the share of their pages that are in memory now."""
        pages, there = 0, 0
        for address, length in self._maps:
            states = np.zeros(-(-length // mmap.PAGESIZE), np.uint8)
            if _libc.mincore(address, length, states.ctypes.data):
                raise OSError(ctypes.get_errno(), "mincore must tell which pages are in memory")
            pages += len(states)
            there += int((states & 1).sum())
        return there / pages if pages else 1.0


@contextmanager
def locked(files: Iterable[Path]) -> Generator[Locked, None, None]:
    """Hold the pages of these files in memory while the block lasts, as far as the system allows it."""
    with ExitStack() as held:
        maps: list[tuple[int, int]] = []
        refused, size_bytes = "", 0
        for path in files:
            length = path.stat().st_size
            if not length:
                continue
            with path.open("rb") as file:
                view = held.enter_context(mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ))
            array = np.frombuffer(view, np.uint8)
            address = array.ctypes.data
            del array  # it would keep the mapping from being closed
            maps.append((address, length))
            size_bytes += length
            if _libc.mlock(address, length):
                refused = refused or f"{path.name} could not be locked: error {ctypes.get_errno()} of mlock"
        yield Locked(size_bytes=size_bytes, refused=refused, _maps=tuple(maps))
