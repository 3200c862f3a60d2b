"""One object, read from place to place with few requests.

Covers: how much is read at once. Does not cover: requests (emlio.store.bucket.requests).

A request costs as much time as reading about 1 MiB. So what is read front to back comes in ever
larger steps. Where a reader leaps from header to header, only a little is read at each.
"""

import io
from collections.abc import Callable
from typing import Final

from typing_extensions import Buffer

__all__ = ["ObjectReader"]

_FIRST_BYTES: Final = 16 << 10
_MOST_BYTES: Final = 8 << 20
_GROWTH: Final = 4
_LEAP_BYTES: Final = 256 << 10
"""Shorter leaps are taken for reading on. This reads at most so much per header that is not needed,
and saves the wait for a request."""


class ObjectReader(io.RawIOBase):
    """An object as a file that is open for reading. Used by one thread."""

    def __init__(self, fetch: Callable[[int, int], Buffer], size_bytes: int) -> None:
        """See the class.

        Args:
            fetch: returns the bytes [start, end).
            size_bytes: the object's size.
        """
        super().__init__()
        self.size_bytes = size_bytes
        self._fetch = fetch
        self._at = 0
        self._window = memoryview(b"")
        self._begin = 0
        self._next = 0
        self._step = _FIRST_BYTES

    def read_at(self, length: int, offset: int) -> memoryview:
        """Return bytes from an offset on; fewer only at the object's end."""
        length = max(min(length, self.size_bytes - offset), 0)
        end = offset + length
        if not length:
            return memoryview(b"")
        leap = offset - self._next
        self._next = end
        if not self._begin <= offset or end > self._begin + len(self._window):
            going_on = bool(self._window) and 0 <= leap <= _LEAP_BYTES
            self._step = min(self._step * _GROWTH, _MOST_BYTES) if going_on else _FIRST_BYTES
            kept = bytes(self._window[offset - self._begin :]) if self._begin <= offset else b""
            begin = offset + len(kept)
            upto = min(max(end, begin + self._step), self.size_bytes)
            self._window = memoryview(kept + bytes(self._fetch(begin, upto)))
            self._begin = offset
        return self._window[offset - self._begin : end - self._begin]

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill a buffer from an offset on; return the number of bytes."""
        data = self.read_at(len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """See `io.RawIOBase`."""
        got = self.read_into(memoryview(buffer).cast("B"), self._at)
        self._at += got
        return got

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See `io.RawIOBase`."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size_bytes}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def tell(self) -> int:
        """See `io.RawIOBase`."""
        return self._at

    def close(self) -> None:
        """See `io.RawIOBase`."""
        self._window = memoryview(b"")
        super().close()
