"""Files on descriptors that others use, too."""

import io
import os

from typing_extensions import Buffer

__all__ = ["PositionedFile"]


class PositionedFile(io.RawIOBase):
    """A file with a position of its own, on a descriptor that others use too and close."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._at = 0

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """See `io.RawIOBase`."""
        got = os.preadv(self._descriptor, [buffer], self._at)
        self._at += got
        return got

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See `io.RawIOBase`."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}.get(whence)
        if base is None:
            base = os.fstat(self._descriptor).st_size
        if base + offset < 0:
            raise ValueError(f"a position must not be negative, got {base + offset}")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """See `io.RawIOBase`."""
        return self._at
