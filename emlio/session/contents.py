"""A set of records on its way from a rank to a daemon, in compressed parts.

Covers: cutting it, putting it together with every length checked before memory is taken. Does not cover: the meaning of the
bytes (emlio.planner.choice.record_set), who asks for them (emlio.session.daemon), the memory of all ranks together
(emlio.daemon.control.session_commands).
"""

import zlib
from collections.abc import Iterator

from emlio.errors import RemoteProtocolError
from emlio.wire.contents import ContentPart
from emlio.wire.limits import CONTENT_PART_BYTES

__all__ = ["ContentCollector", "cut_content", "pack", "unpack"]

_LEVEL = 1
"""Of compression: sets are sent once, and shuffled ones hardly become shorter."""


def pack(data: bytes | memoryview) -> bytes:
    """Return bytes compressed."""
    return zlib.compress(data, _LEVEL)


def unpack(data: bytes, size: int) -> bytes:
    """Return bytes that `pack` compressed.

    Raises:
        RemoteProtocolError: they are not so many, or damaged. No more memory is taken.
    """
    reader = zlib.decompressobj()
    try:
        found = reader.decompress(data, size + 1)
    except zlib.error as error:
        raise RemoteProtocolError(f"a part of a set of records must be compressed bytes: {error}") from None
    if len(found) != size or not reader.eof or reader.unused_data:
        raise RemoteProtocolError(f"a part of a set of records must have {size} bytes, got others")
    return found


def cut_content(session: int, digest: str, content: bytes) -> Iterator[ContentPart]:
    """Yield the parts of a set of records, in order."""
    for first in range(0, len(content), CONTENT_PART_BYTES):
        part = content[first : first + CONTENT_PART_BYTES]
        yield ContentPart(
            session=session, content=digest, first=first, size=len(part), total=len(content), data=pack(part)
        )


class ContentCollector:
    """One set of records that is being received.

    Attributes:
        digest: the set's digest, not checked here.
    """

    def __init__(self, digest: str) -> None:
        self.digest = digest
        self._parts: list[bytes] = []
        self._size: int = 0
        self._total: int = 0

    def take(self, part: ContentPart) -> bytes | None:
        """Return the content that this part completes, or None.

        Raises:
            RemoteProtocolError: the part is not the next one.
        """
        if part.content != self.digest:
            raise RemoteProtocolError("a set of records must be the requested one, got another")
        if part.first != self._size or part.first + part.size > part.total:
            raise RemoteProtocolError(
                f"a set of records must continue at byte {self._size} of {part.total}, got byte {part.first} with "
                f"{part.size} bytes"
            )
        if self._parts and part.total != self._total:
            raise RemoteProtocolError(f"a set's total must be {self._total} in all its parts, got {part.total}")
        self._parts.append(unpack(part.data, part.size))
        self._size += part.size
        self._total = part.total
        if self._size < self._total:
            return None
        content, self._parts = b"".join(self._parts), []
        return content
