"""What one process that fuzzes tells another, also when it dies: how far it is and which input it has in hand.

Covers: a small file mapped by both. Does not cover: findings that are written by the process itself.
"""

import mmap
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Ledger"]

_HEAD = struct.Struct("<QQI")
_MOST_BYTES = 1 << 20


class Ledger:
    """Counts and the input in hand. Written by one process, read by another."""

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            file.truncate(_HEAD.size + _MOST_BYTES)
            self._map = mmap.mmap(file.fileno(), _HEAD.size + _MOST_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._map.close()

    def begin(self, executions: int, elapsed_ns: int, data: bytes) -> None:
        """This input is in hand."""
        data = data[:_MOST_BYTES]
        self._map[_HEAD.size : _HEAD.size + len(data)] = data
        _HEAD.pack_into(self._map, 0, executions, elapsed_ns, len(data))

    def end(self, executions: int, elapsed_ns: int) -> None:
        """None is."""
        _HEAD.pack_into(self._map, 0, executions, elapsed_ns, 0)

    def executions(self) -> int:
        """Inputs so far."""
        return int(_HEAD.unpack_from(self._map)[0])

    def elapsed_ns(self) -> int:
        """Time they took."""
        return int(_HEAD.unpack_from(self._map)[1])

    def in_hand(self) -> bytes:
        """The input that was begun last and has not ended; empty where there is none."""
        size = int(_HEAD.unpack_from(self._map)[2])
        return bytes(self._map[_HEAD.size : _HEAD.size + size])
